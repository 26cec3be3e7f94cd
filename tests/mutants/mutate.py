"""Find the places of a module where a small change alters its meaning, and make such changes.

A `Site` is such a place, with one or more changes; a `Mutant` is one change. Changes concern what
a program computes: comparisons, arithmetic, logic, constants, arguments, branches, guards, and
strings that name an adapter, a split or a column. Messages, docstrings, annotations, progress
displays and the look of figures are left alone.
"""

import ast
import hashlib
import re
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass

COMPARISONS = {
    ast.Lt: ("<", ("<=", ">")),
    ast.LtE: ("<=", ("<", ">=")),
    ast.Gt: (">", (">=", "<")),
    ast.GtE: (">=", (">", "<=")),
    ast.Eq: ("==", ("!=",)),
    ast.NotEq: ("!=", ("==",)),
    ast.In: ("in", ("not in",)),
    ast.NotIn: ("not in", ("in",)),
    ast.Is: ("is", ("is not",)),
    ast.IsNot: ("is not", ("is",)),
}
ARITHMETIC = {
    ast.Add: ("+", ("-",)),
    ast.Sub: ("-", ("+",)),
    ast.Mult: ("*", ("/",)),
    ast.Div: ("/", ("*",)),
    ast.FloorDiv: ("//", ("*",)),
    ast.Mod: ("%", ("*",)),
    ast.Pow: ("**", ("*",)),
    ast.BitOr: ("|", ("&",)),
    ast.BitAnd: ("&", ("|",)),
    ast.LShift: ("<<", (">>",)),
    ast.RShift: (">>", ("<<",)),
}
OPPOSITES = {
    **{"min": "max", "max": "min", "any": "all", "all": "any", "floor": "ceil", "ceil": "floor"},
    **{"cumsum": "cumprod", "argmax": "argmin", "argmin": "argmax", "idxmax": "idxmin"},
    **{"first": "last", "last": "first", "mean": "sum", "startswith": "endswith"},
    **{"endswith": "startswith", "lower": "upper", "union": "intersection"},
}
# Calls whose arguments are not swapped or dropped: it would fail at once or change nothing.
BUILTINS = frozenset("min max zip getattr hasattr isinstance map filter cast field".split())
# Names that could be confused: a string of a family is replaced by another of the same family.
FAMILIES = (
    ("rag", "cov", "cov-direct", "rewrite"),
    ("test", "validation", "train"),
    ("raw", "normalised", "whole"),
    ("true", "false", "unclear"),
    ("last", "likelier", "weighed"),
    ("revision", "thresholds"),
    ("bm25", "dense", "fused"),
    ("paper", "shared"),
    ("forced", "free"),
    ("answer", "verify"),
    ("keep", "recompute", "offload"),
    ("table2", "table3", "table4", "table5", "table6"),
)
NAME = re.compile(r"[A-Za-z][\w.+-]*(?: [\w.+-]+){0,2}")
# Calls that only show something, and arguments that only concern the look or the machine.
DISPLAY_CALLS = re.compile(
    r"print|warn|warning|report_fallback|add_argument|ArgumentParser|HTML|Markdown|display|track|"
    r"progress|tqdm|annotate|text|set_title|set_xlabel|set_ylabel|suptitle|legend|subplots|savefig|"
    r"tick_params|despine|fig_?text|dumps|need|TypeVar|getLogger"
)
DISPLAY_ARGUMENTS = frozenset(
    "help description title label labels legend color colour figsize dpi fontsize size linewidth "
    "lw ls ms linestyle marker markersize alpha zorder ha va rotation pad width height indent "
    "stacklevel encoding errors desc unit caption style ensure_ascii flush file maxsize why "
    "effect show_progress show_progress_bar".split()
)


@dataclass(frozen=True)
class Mutant:
    """One change of one file."""

    file: str  # relative to the project
    function: str  # the function or class it is in; "" for the module itself
    operator: str
    start: int  # bytes of the file that are replaced
    end: int
    old: str
    new: str
    line: int
    nth: int = 0  # distinguishes equal changes within one function

    @property
    def key(self) -> str:
        """A name that does not depend on where in the file the function is."""
        parts = (self.file, self.function, self.operator, self.old, self.new, self.nth)
        return hashlib.sha256(repr(parts).encode()).hexdigest()[:12]

    def apply(self, source: bytes) -> bytes:
        """Return the file's bytes with the change."""
        return source[: self.start] + self.new.encode() + source[self.end :]


Site = list[Mutant]  # the changes at one place, of which a sample takes one


def find_sites(file: str, text: str) -> list[Site]:
    """Return the places of a module that can be changed, in the order of its lines."""
    finder = _Finder(file, text)
    finder.visit(finder.tree)
    sites = []
    counts: dict[tuple, int] = defaultdict(int)
    for changes in sorted(finder.sites, key=lambda changes: changes[0][2]):
        site = []
        for operator, function, start, end, new, line in changes:
            old = finder.source[start:end].decode()
            identity = (function, operator, old, new)
            mutant = Mutant(file, function, operator, start, end, old, new, line, counts[identity])
            counts[identity] += 1
            if old != new:
                site.append(mutant)
        if site:
            sites.append(site)
    return sites


def is_valid(mutant: Mutant, source: bytes) -> bool:
    """Return whether the changed file is still Python; slower than finding the change."""
    try:
        ast.parse(mutant.apply(source))
    except (SyntaxError, ValueError):
        return False
    return True


class _Finder(ast.NodeVisitor):
    """Collects changes as (operator, function, start, end, new text, line), grouped by place."""

    def __init__(self, file: str, text: str):
        self.file = file
        self.source = text.encode()
        self.tree = ast.parse(text)
        lengths = [len(line) for line in self.source.splitlines(keepends=True)]
        self.line_starts = [sum(lengths[:i]) for i in range(len(lengths) + 1)]
        self.sites: list[list[tuple]] = []
        self.scope: list[str] = []
        self.names = self.collect_names()

    # Where a node is.

    def span(self, node: ast.AST) -> tuple[int, int]:
        start = self.line_starts[node.lineno - 1] + node.col_offset
        return start, self.line_starts[node.end_lineno - 1] + node.end_col_offset

    def segment(self, node: ast.AST) -> str:
        start, end = self.span(node)
        return self.source[start:end].decode()

    def add(self, node: ast.AST, changes: list[tuple[str, int, int, str]]) -> None:
        """Add a place with its changes: operator, start, end, new text."""
        function = ".".join(self.scope)
        line = node.lineno
        if changes:
            self.sites.append(
                [(name, function, start, end, new, line) for name, start, end, new in changes]
            )

    def replace_between(
        self, operator: str, left: ast.AST, right: ast.AST, old: str, news: tuple[str, ...]
    ) -> list[tuple[str, int, int, str]]:
        """Replace an operator between two nodes; brackets may be around it."""
        start, end = self.span(left)[1], self.span(right)[0]
        gap = self.source[start:end].decode()
        pattern = r"\b" + old.replace(" ", r"\s+") + r"\b" if old[0].isalpha() else re.escape(old)
        match = re.search(pattern, gap)
        if not match:
            return []
        first = start + len(gap[: match.start()].encode())
        last = start + len(gap[: match.end()].encode())
        return [(operator, first, last, new) for new in news]

    # Strings that are names.

    def collect_names(self) -> dict[str, list[str]]:
        """Return the names of this file by the role in which they occur."""
        names = defaultdict(list)
        for node in ast.walk(self.tree):
            for role, child in named_strings(node):
                if child.value not in names[role]:
                    names[role].append(child.value)
        return names

    def rename(self, role: str, node: ast.Constant) -> None:
        """Replace a name by one of its family, or by the next name of this role in the file."""
        others = [name for family in FAMILIES if node.value in family for name in family]
        others = others or self.names[role]
        place = others.index(node.value)
        following = [*others[place + 1 :], *others[:place]]
        start, end = self.span(node)
        news = following[:2] or [f"{node.value}_other"]
        self.add(node, [("name", start, end, repr(new).replace("'", '"')) for new in news])

    # What is left alone.

    def visit(self, node: ast.AST) -> None:
        if isinstance(node, ast.Raise | ast.Assert | ast.JoinedStr | ast.Import | ast.ImportFrom):
            return
        if isinstance(node, ast.Call) and self.is_display(node):
            return
        for role, child in named_strings(node):
            self.rename(role, child)
        super().visit(node)

    def is_display(self, call: ast.Call) -> bool:
        name = call.func.attr if isinstance(call.func, ast.Attribute) else None
        name = call.func.id if isinstance(call.func, ast.Name) else name
        return bool(name and DISPLAY_CALLS.fullmatch(name))

    def visit_keyword(self, node: ast.keyword) -> None:
        if node.arg not in DISPLAY_ARGUMENTS:
            self.generic_visit(node)

    def visit_arguments(self, node: ast.arguments) -> None:
        for default in [*node.defaults, *node.kw_defaults]:
            if default is not None:
                self.visit(default)

    def visit_AnnAssign(self, node: ast.AnnAssign) -> None:  # noqa: N802
        if node.value:
            self.visit(node.value)

    def visit_scope(self, node: ast.FunctionDef | ast.ClassDef) -> None:
        self.scope.append(node.name)
        if isinstance(node, ast.FunctionDef):
            self.visit(node.args)
        for statement in node.body:
            self.visit(statement)
        self.scope.pop()

    visit_FunctionDef = visit_ClassDef = visit_scope

    def visit_If(self, node: ast.If) -> None:  # noqa: N802
        test = ast.unparse(node.test)
        if test == "TYPE_CHECKING" or test.startswith("__name__"):
            return
        self.negate(node)
        if len(node.body) == 1 and isinstance(node.body[0], ast.Raise | ast.Return | ast.Continue):
            start, end = self.span(node.test)
            self.add(node, [("guard dropped", start, end, "False")])
        self.generic_visit(node)

    # Changes.

    def negate(self, node: ast.If | ast.IfExp | ast.While) -> None:
        start, end = self.span(node.test)
        if isinstance(node.test, ast.UnaryOp) and isinstance(node.test.op, ast.Not):
            new = self.segment(node.test.operand)
        else:
            new = f"not ({self.segment(node.test)})"
        self.add(node, [("branches swapped", start, end, new)])

    def visit_IfExp(self, node: ast.IfExp) -> None:  # noqa: N802
        self.negate(node)
        self.generic_visit(node)

    def visit_Compare(self, node: ast.Compare) -> None:  # noqa: N802
        left = node.left
        for op, right in zip(node.ops, node.comparators):
            old, news = COMPARISONS[type(op)]
            self.add(node, self.replace_between("comparison", left, right, old, news))
            left = right
        self.generic_visit(node)

    def visit_BinOp(self, node: ast.BinOp) -> None:  # noqa: N802
        # Lists and texts can only be added: any other operator fails at once.
        crashes = is_sequence(node.left) or is_sequence(node.right)
        if type(node.op) in ARITHMETIC and not crashes:
            old, news = ARITHMETIC[type(node.op)]
            self.add(node, self.replace_between("arithmetic", node.left, node.right, old, news))
        self.generic_visit(node)

    def visit_AugAssign(self, node: ast.AugAssign) -> None:  # noqa: N802
        if isinstance(node.op, ast.Add | ast.Sub):
            old, new = ("+=", "-=") if isinstance(node.op, ast.Add) else ("-=", "+=")
            self.add(node, self.replace_between("arithmetic", node.target, node.value, old, (new,)))
        self.drop_statement(node)
        self.generic_visit(node)

    def visit_BoolOp(self, node: ast.BoolOp) -> None:  # noqa: N802
        old, new = ("and", "or") if isinstance(node.op, ast.And) else ("or", "and")
        for left, right in zip(node.values, node.values[1:]):
            changes = self.replace_between("logic", left, right, old, (new,))
            start, end = self.span(left)[0], self.span(right)[1]
            changes.append(("operand dropped", start, end, self.segment(left)))
            changes.append(("operand dropped", start, end, self.segment(right)))
            self.add(node, changes)
        self.generic_visit(node)

    def visit_UnaryOp(self, node: ast.UnaryOp) -> None:  # noqa: N802
        if isinstance(node.op, ast.Not | ast.USub | ast.Invert):
            start, end = self.span(node)
            is_number = isinstance(node.operand, ast.Constant)
            operator = "logic" if isinstance(node.op, ast.Not) else "arithmetic"
            changes = [(operator, start, end, self.segment(node.operand))]
            if is_number and isinstance(node.op, ast.USub):
                changes.append(("constant", start, end, f"-{node.operand.value + 1}"))
                self.add(node, changes)
                return
            self.add(node, changes)
        self.generic_visit(node)

    def visit_Constant(self, node: ast.Constant) -> None:  # noqa: N802
        start, end = self.span(node)
        value = node.value
        if isinstance(value, bool):
            self.add(node, [("constant", start, end, str(not value))])
        elif isinstance(value, int):
            news = [value + 1, value - 1] if value else [1]
            self.add(node, [("constant", start, end, str(new)) for new in news])
        elif isinstance(value, float):
            news = [value * 2, value / 2] if value else [1.0]
            self.add(node, [("constant", start, end, repr(new)) for new in news])

    def visit_Call(self, node: ast.Call) -> None:  # noqa: N802
        name = getattr(node.func, "attr", None) or getattr(node.func, "id", "")
        if name in OPPOSITES:
            end = self.span(node.func)[1]
            start = end - len(name)
            self.add(node, [("opposite", start, end, OPPOSITES[name])])
        if name not in BUILTINS:
            self.change_arguments(node)
        self.generic_visit(node)

    def change_arguments(self, node: ast.Call) -> None:
        """Swap neighbouring arguments; drop the last positional one or a keyword."""
        starred = any(isinstance(argument, ast.Starred) for argument in node.args)
        arguments = [*node.args, *node.keywords]
        if len(arguments) < 2 or starred:
            return
        texts = [self.segment(argument) for argument in arguments]
        start, end = self.span(arguments[0])[0], self.span(arguments[-1])[1]

        def changed(operator: str, new_texts: list[str]) -> tuple[str, int, int, str]:
            return operator, start, end, ", ".join(new_texts)

        for i in range(len(node.args) - 1):
            swapped = [*texts[:i], texts[i + 1], texts[i], *texts[i + 2 :]]
            self.add(node.args[i], [changed("arguments swapped", swapped)])
        for i, argument in enumerate(arguments):
            is_last_positional = i == len(node.args) - 1 and i > 0
            is_keyword = isinstance(argument, ast.keyword)
            shown = is_keyword and argument.arg in DISPLAY_ARGUMENTS
            if (is_last_positional or is_keyword) and not shown:
                dropped = changed("argument dropped", [*texts[:i], *texts[i + 1 :]])
                self.add(argument, [dropped])

    def visit_comprehension(self, node: ast.comprehension) -> None:
        for condition in node.ifs:
            start, end = self.span(condition)
            self.add(condition, [("filter dropped", start, end, "True")])
        self.generic_visit(node)

    def visit_Slice(self, node: ast.Slice) -> None:  # noqa: N802
        if node.upper is None and node.lower is not None and node.step is None:
            start, end = self.span(node.lower)
            new = f":{self.segment(node.lower)}"
            # `a[n:]` becomes `a[:n]`: the colon after the bound goes, one before it comes.
            colon = self.source.index(b":", end)
            self.add(node.lower, [("slice", start, colon + 1, new)])
        elif node.lower is None and node.upper is not None and node.step is None:
            start, end = self.span(node.upper)
            colon = self.source.rindex(b":", 0, start)
            self.add(node.upper, [("slice", colon, end, f"{self.segment(node.upper)}:")])
        self.generic_visit(node)

    def visit_Attribute(self, node: ast.Attribute) -> None:  # noqa: N802
        if isinstance(node.value, ast.Name) and node.value.id == "names" and node.attr.isupper():
            used = sorted(
                {
                    other.attr
                    for other in ast.walk(self.tree)
                    if isinstance(other, ast.Attribute)
                    and isinstance(other.value, ast.Name)
                    and other.value.id == "names"
                }
            )
            others = [name for name in used if name != node.attr and name.isupper()]
            start, end = self.span(node)
            if others:
                new = others[used.index(node.attr) % len(others)]
                self.add(node, [("name", start, end, f"names.{new}")])
        self.generic_visit(node)

    def visit_Expr(self, node: ast.Expr) -> None:  # noqa: N802
        if isinstance(node.value, ast.Constant):  # a docstring
            return
        if isinstance(node.value, ast.Call) and not self.is_display(node.value):
            self.drop_statement(node)
        self.generic_visit(node)

    def drop_statement(self, node: ast.stmt) -> None:
        start, end = self.span(node)
        self.add(node, [("statement dropped", start, end, "pass")])

    def visit_Break(self, node: ast.Break) -> None:  # noqa: N802
        self.add(node, [("loop", *self.span(node), "continue")])

    def visit_Continue(self, node: ast.Continue) -> None:  # noqa: N802
        self.add(node, [("loop", *self.span(node), "break")])


def is_sequence(node: ast.AST) -> bool:
    """Return whether an expression is certainly a text, a list or a tuple."""
    if isinstance(node, ast.Constant):
        return isinstance(node.value, str)
    if isinstance(node, ast.Call):
        return getattr(node.func, "attr", "") == "join" or getattr(node.func, "id", "") == "list"
    return isinstance(node, ast.List | ast.ListComp | ast.JoinedStr | ast.Tuple)


def named_strings(node: ast.AST) -> Iterator[tuple[str, ast.Constant]]:
    """Yield the strings directly below a node that may be names, with the role they have there."""
    children: list[tuple[str, ast.AST | None]] = []
    if isinstance(node, ast.Subscript):
        children = [("key", node.slice)]
    elif isinstance(node, ast.Compare):
        children = [("value", part) for part in (node.left, *node.comparators)]
    elif isinstance(node, ast.Call):
        name = getattr(node.func, "attr", None) or getattr(node.func, "id", "")
        children = [("key" if name in ("get", "pop") else "value", part) for part in node.args]
    elif isinstance(node, ast.keyword) and node.arg not in DISPLAY_ARGUMENTS:
        children = [("value", node.value)]
    elif isinstance(node, ast.Dict):
        children = [("key", key) for key in node.keys] + [("value", part) for part in node.values]
    elif isinstance(node, ast.Tuple | ast.List | ast.Set):
        children = [("value", part) for part in node.elts]
    elif isinstance(node, ast.IfExp):
        children = [("value", node.body), ("value", node.orelse)]
    elif isinstance(node, ast.Assign | ast.AnnAssign | ast.Return):
        children = [("value", node.value)]
    for role, child in children:
        if isinstance(child, ast.Constant) and isinstance(child.value, str):
            if NAME.fullmatch(child.value):
                yield role, child
