"""A plugin for mypy, which does not look at what the decorator of a class gives back.

    [tool.mypy]
    plugins = ["penstock.mypy"]

    @bank.table            class "Account record": …
    class Account: …       Account: Table["Account record"]
    @bank.window(rows=3)   class "Recent record": …
    class Recent: …        Recent: Window["Recent record"]     and `w: Recent` in a trigger is one
    @bank.event
    class Transfer: …      class Transfer(Fields): …           (declare/marks.py)

It reads what stands on the left as what stands on the right, where `bank` is an app: `bank = ps.App("bank")`, or a name
with the type `ps.App`. A class that stays a class will not do for a table: mypy takes `account = Account[key]` for
another name of a type. pyright needs nothing of this.
"""

from __future__ import annotations

from collections.abc import Callable

from mypy.mro import calculate_mro
from mypy.nodes import GDEF, LDEF, CallExpr, Expression, MemberExpr, NameExpr, SymbolTableNode, TypeInfo, Var
from mypy.options import Options
from mypy.plugin import (
    AnalyzeTypeContext,
    ClassDefContext,
    DynamicClassDefContext,
    Plugin,
    SemanticAnalyzerPluginInterface,
)
from mypy.semanal import SemanticAnalyzer
from mypy.types import Instance, Type, get_proper_type

APP, TABLE, FIELDS = "penstock.app.App", "penstock.declare.objects.Table", "penstock.declare.marks.Fields"
WINDOW = "penstock.declare.objects.Window"


class PenstockPlugin(Plugin):
    def __init__(self, options: Options) -> None:
        super().__init__(options)
        self._windows: set[str] = set()  # the full names of variables that are windows

    def get_dynamic_class_hook(self, fullname: str) -> Callable[[DynamicClassDefContext], None] | None:
        """Called for `name = fullname(...)`."""
        return _app if fullname == APP else None

    def get_customize_class_mro_hook(self, fullname: str) -> Callable[[ClassDefContext], None] | None:
        """Called for every class, before its body is read. For decorators mypy has hooks of their own, but it calls
        those only for functions that it finds without knowing what `bank` is."""
        return self._class

    def get_type_analyze_hook(self, fullname: str) -> Callable[[AnalyzeTypeContext], Type] | None:
        """Called for every name that stands for a type, as a window does in `def trending(w: Recent)`."""
        return _a_window if fullname in self._windows else None

    def _class(self, ctx: ClassDefContext) -> None:
        for decorator in ctx.cls.decorators:
            called = decorator.callee if isinstance(decorator, CallExpr) else decorator
            if isinstance(called, MemberExpr) and _is_app(ctx, called.expr):
                if called.name == "table":
                    _variable(ctx, TABLE)
                elif called.name == "event":
                    _event(ctx)
                elif called.name == "window":
                    self._windows.add(_variable(ctx, WINDOW))


def _a_window(ctx: AnalyzeTypeContext) -> Type:
    return ctx.api.named_type(WINDOW, [])


def _app(ctx: DynamicClassDefContext) -> None:
    """mypy infers what `bank` is only after the classes below it were read, so it is told now."""
    found = ctx.api.lookup_qualified(ctx.name, ctx.call, suppress_errors=True)
    if found is not None and isinstance(found.node, Var) and found.node.type is None:
        found.node.type = _instance(ctx.api, APP)


def _variable(ctx: ClassDefContext, kind: str) -> str:
    """The class becomes a variable of this kind; its full name."""
    api, defn, info = ctx.api, ctx.cls, ctx.cls.info
    assert isinstance(api, SemanticAnalyzer)
    names, name = api.current_symbol_table(), defn.name
    table = _instance(api, kind, Instance(info, []))
    if table is None or " " in name:  # mypy may read a class more than once; it has its new name then
        return defn.fullname.partition(" ")[0]
    variable = Var(name, table)
    variable.is_ready = True
    variable.set_line(defn)
    if api.is_func_scope():  # what is inside a function is known by its line, so the class can keep its name
        variable._fullname = name
        names[name] = SymbolTableNode(LDEF, variable)
        return name
    variable._fullname = api.qualified_name(name)
    names[name] = SymbolTableNode(GDEF, variable)
    defn.name = f"{name} record"
    defn.fullname = info._fullname = api.qualified_name(defn.name)
    names[defn.name] = SymbolTableNode(GDEF, info)
    return variable._fullname


def _event(ctx: ClassDefContext) -> None:
    base = _instance(ctx.api, FIELDS)
    if base is not None:
        ctx.cls.info.bases, ctx.cls.info.mro = [base], []
        calculate_mro(ctx.cls.info)


def _is_app(ctx: ClassDefContext, expression: Expression) -> bool:
    name = _dotted(expression)
    found = ctx.api.lookup_qualified(name, ctx.cls, suppress_errors=True) if name else None
    if found is None or not isinstance(found.node, Var):
        return False
    kind = get_proper_type(found.node.type)
    return isinstance(kind, Instance) and kind.type.has_base(APP)


def _dotted(expression: Expression) -> str:
    """`bank` or `module.bank`; nothing where it is more than a name."""
    if isinstance(expression, NameExpr):
        return expression.name
    if isinstance(expression, MemberExpr) and (module := _dotted(expression.expr)):
        return f"{module}.{expression.name}"
    return ""


def _instance(api: SemanticAnalyzerPluginInterface, fullname: str, *arguments: Type) -> Instance | None:
    found = api.lookup_fully_qualified_or_none(fullname)
    return Instance(found.node, list(arguments)) if found is not None and isinstance(found.node, TypeInfo) else None


def plugin(version: str) -> type[Plugin]:
    """What mypy calls, with its own version."""
    return PenstockPlugin
