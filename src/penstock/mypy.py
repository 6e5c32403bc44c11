"""A plugin for mypy, which does not look at what the decorator of a class gives back.

    [tool.mypy]
    plugins = ["penstock.mypy"]

    @bank.table            class "Account record": …
    class Account: …       Account: Table["Account record"]
    @bank.window(rows=9)   class "Recent record": …
    class Recent: …        Recent: Window["Recent record"]
    @bank.event
    class Transfer: …      class Transfer(Fields): …           (declare/app.py)

It reads what stands on the left as what stands on the right, where `bank` is an app: `bank = ps.App("bank")`, or a name
with the type `ps.App`. A class that stays a class will not do for a table: mypy takes `account = Account[key]` for
another name of a type. pyright needs nothing of this.
"""

from __future__ import annotations

from collections.abc import Callable

from mypy.mro import calculate_mro
from mypy.nodes import GDEF, LDEF, CallExpr, Expression, MemberExpr, NameExpr, SymbolTableNode, TypeInfo, Var
from mypy.plugin import ClassDefContext, DynamicClassDefContext, Plugin, SemanticAnalyzerPluginInterface
from mypy.semanal import SemanticAnalyzer
from mypy.types import Instance, Type, get_proper_type

APP, FIELDS = "penstock.app.App", "penstock.declare.app.Fields"
# What the decorators of this name give.
OBJECTS = {"table": "penstock.declare.objects.Table", "window": "penstock.declare.objects.Window"}


class PenstockPlugin(Plugin):
    def get_dynamic_class_hook(self, fullname: str) -> Callable[[DynamicClassDefContext], None] | None:
        """Called for `name = fullname(...)`."""
        return _app if fullname == APP else None

    def get_customize_class_mro_hook(self, fullname: str) -> Callable[[ClassDefContext], None] | None:
        """Called for every class, before its body is read. For decorators mypy has hooks of their own, but it calls
        those only for functions that it finds without knowing what `bank` is."""
        return _class


def _app(ctx: DynamicClassDefContext) -> None:
    """mypy infers what `bank` is only after the classes below it were read, so it is told now."""
    found = ctx.api.lookup_qualified(ctx.name, ctx.call, suppress_errors=True)
    if found is not None and isinstance(found.node, Var) and found.node.type is None:
        found.node.type = _instance(ctx.api, APP)


def _class(ctx: ClassDefContext) -> None:
    for decorator in ctx.cls.decorators:
        if isinstance(decorator, CallExpr):  # @bank.table(ttl=…)
            decorator = decorator.callee
        if isinstance(decorator, MemberExpr) and _is_app(ctx, decorator.expr):
            if decorator.name in OBJECTS:
                _object(ctx, OBJECTS[decorator.name])
            elif decorator.name == "event":
                _event(ctx)


def _object(ctx: ClassDefContext, kind: str) -> None:
    api, defn, info = ctx.api, ctx.cls, ctx.cls.info
    assert isinstance(api, SemanticAnalyzer)
    names, name = api.current_symbol_table(), defn.name
    given = _instance(api, kind, Instance(info, []))
    if given is None or " " in name:  # mypy may read a class more than once; it has its new name then
        return
    variable = Var(name, given)
    variable.is_ready = True
    variable.set_line(defn)
    if api.is_func_scope():  # what is inside a function is known by its line, so the class can keep its name
        variable._fullname = name
        names[name] = SymbolTableNode(LDEF, variable)
        return
    variable._fullname = api.qualified_name(name)
    names[name] = SymbolTableNode(GDEF, variable)
    defn.name = f"{name} record"
    defn.fullname = info._fullname = api.qualified_name(defn.name)
    names[defn.name] = SymbolTableNode(GDEF, info)


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
