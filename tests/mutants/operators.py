"""Mutation operators: every small change to a module's source that a test should notice.

A mutant replaces one node of the syntax tree by another. Only that part of the source is rewritten, so that lines stay
where they are and the difference is short. Annotations, docstrings, decorators, f-strings and protocols are left alone:
nothing depends on the first two at run time, and the rest is no behaviour of its own.
"""

import ast
import hashlib
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

_COMPARISONS: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
}
_ARITHMETIC: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.FloorDiv,
    ast.FloorDiv: ast.Mult,
    ast.Div: ast.Mult,
    ast.Mod: ast.Mult,
    ast.LShift: ast.RShift,
    ast.RShift: ast.LShift,
    ast.BitAnd: ast.BitOr,
    ast.BitOr: ast.BitAnd,
}


@dataclass(frozen=True)
class Mutant:
    """One change to one file."""

    file: str
    """Its path below the package."""
    line: int
    function: str
    """The qualified name of the function that has it; empty at the level of the module or of a class."""
    defined_at: int
    """The line of that function's `def`, or of its first decorator; 0 if there is no function."""
    before: str
    after: str
    nth: int
    """Which of the changes that look the same in this function it is."""
    start: int
    end: int

    @property
    def id(self) -> str:
        """Does not change when other parts of the file do."""
        return f"{self.file}:{self.function}: {self.before} -> {self.after} #{self.nth}"

    def rank(self, seed: int) -> str:
        """A reproducible random order of mutants for a seed."""
        return hashlib.sha256(f"{seed} {self.id}".encode()).hexdigest()

    def apply(self, source: bytes) -> bytes:
        return source[: self.start] + self.after.encode() + source[self.end :]


def mutants_of(path: Path, package: Path) -> list[Mutant]:
    """Every mutant of a module, in the order of the source."""
    return list(_Module(path.read_bytes(), path.relative_to(package).as_posix()).mutants())


class _Module:
    def __init__(self, source: bytes, file: str) -> None:
        self._source = source
        self._file = file
        self._offsets = [0]
        for line in source.splitlines(keepends=True):
            self._offsets.append(self._offsets[-1] + len(line))
        self._alike: Counter[tuple[str, str, str]] = Counter()

    def mutants(self) -> Iterator[Mutant]:
        yield from self._walk(ast.parse(self._source), "", 0, in_function=False)

    def _walk(self, node: ast.AST, name: str, defined_at: int, *, in_function: bool) -> Iterator[Mutant]:
        for part, changed in _changes(node, in_function=in_function):
            start, end = self._span(part)
            before = " ".join(self._source[start:end].decode().split())
            after = ast.unparse(changed)
            if isinstance(changed, ast.expr) and not isinstance(changed, ast.Constant):
                after = f"({after})"
            where = name if in_function else ""
            key = (where, before, after)
            self._alike[key] += 1
            line = self._source.count(b"\n", 0, start) + 1
            yield Mutant(self._file, line, where, defined_at, before, after, self._alike[key], start, end)
        for child in _children(node):
            if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef):
                first = min([child.lineno, *(each.lineno for each in child.decorator_list)])
                yield from self._walk(child, f"{name}.{child.name}".lstrip("."), first, in_function=True)
            elif isinstance(child, ast.ClassDef):
                yield from self._walk(child, f"{name}.{child.name}".lstrip("."), defined_at, in_function=in_function)
            else:
                yield from self._walk(child, name, defined_at, in_function=in_function)

    def _span(self, node: ast.AST) -> tuple[int, int]:
        start = self._offsets[node.lineno - 1] + node.col_offset  # type: ignore[attr-defined]
        end = self._offsets[node.end_lineno - 1] + node.end_col_offset  # type: ignore[attr-defined]
        return start, end


def _children(node: ast.AST) -> Iterator[ast.AST]:
    """The children of a node in which a change is one of behaviour."""
    match node:
        case ast.JoinedStr() | ast.Import() | ast.ImportFrom():
            return
        case ast.ClassDef(bases=bases) if any("Protocol" in ast.unparse(base) for base in bases):
            return
        case ast.If(test=ast.Name(id="TYPE_CHECKING")):
            return
        case ast.Assign(targets=[ast.Name(id="__slots__" | "__all__")]):
            return
        case ast.AnnAssign(value=value):
            if value is not None:
                yield value
        case ast.ClassDef(body=body):
            yield from body
        case ast.FunctionDef(args=args, body=body) | ast.AsyncFunctionDef(args=args, body=body):
            yield from (default for default in (*args.defaults, *args.kw_defaults) if default is not None)
            yield from body
        case ast.Call(func=ast.Name(id="cast" | "TypeVar" | "NewType"), args=[_, *rest]):
            yield from rest
        case ast.Subscript(value=ast.Name(id="Literal")):
            return
        case _:
            yield from ast.iter_child_nodes(node)


def _changes(node: ast.AST, *, in_function: bool) -> Iterator[tuple[ast.AST, ast.AST]]:
    """What may be changed in a node, and into what."""
    match node:
        case ast.Compare(left=left, ops=ops, comparators=comparators):
            for number, operator in enumerate(ops):
                other = _COMPARISONS[type(operator)]()
                yield node, ast.Compare(left, [*ops[:number], other, *ops[number + 1 :]], comparators)
        case ast.BinOp(left=left, op=operator, right=right) if type(operator) in _ARITHMETIC and in_function:
            if not (isinstance(left, ast.Constant) and isinstance(left.value, str | bytes)):  # no formatting
                yield node, ast.BinOp(left, _ARITHMETIC[type(operator)](), right)
        case ast.AugAssign(target=target, op=operator, value=value) if type(operator) in _ARITHMETIC:
            yield node, ast.AugAssign(target, _ARITHMETIC[type(operator)](), value)
            yield node, ast.Pass()
        case ast.BoolOp(op=operator, values=values):
            yield node, ast.BoolOp(ast.Or() if isinstance(operator, ast.And) else ast.And(), values)
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            yield node, operand
        case ast.Constant(value=bool(value)):
            yield node, ast.Constant(not value)
        case ast.Constant(value=int(value)) | ast.Constant(value=float(value)):
            yield node, ast.Constant(value + 1)
        case ast.Return(value=ast.List(elts=[]) | ast.Tuple(elts=[]) | ast.Dict(keys=[])):
            return  # as false as None
        case ast.Return(value=ast.expr() as value) if not isinstance(value, ast.Constant):
            yield node, ast.Return(ast.Constant(None))
        case ast.If(test=ast.Name(id="TYPE_CHECKING")):
            return
        case ast.If(test=test) | ast.While(test=test) | ast.IfExp(test=test):
            if isinstance(test, ast.Name | ast.Attribute | ast.Call | ast.NamedExpr | ast.Subscript):
                yield test, ast.UnaryOp(ast.Not(), test)
        case ast.Expr(value=ast.Call() | ast.Await()) | ast.Raise() if in_function:
            yield node, ast.Pass()
        case ast.Assign(targets=[ast.Attribute() | ast.Subscript()]) if in_function:
            yield node, ast.Pass()
        case ast.Continue():
            yield node, ast.Break()
        case ast.Break():
            yield node, ast.Continue()
        case _:
            pass
