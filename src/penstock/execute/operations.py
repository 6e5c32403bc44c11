"""The source of each operation of a plan: values, lookups, writes, loops, checks, undo.

Operations that share a guard share one `if`; what they make is set to zero before it, so that every
name is defined on every path. Inside the transaction's one-turn `while`, `break` aborts; a loop of the
user's own passes it on.
"""

from __future__ import annotations

from itertools import groupby

from penstock.declare.model import TableDef
from penstock.declare.types import Type
from penstock.execute import emit, scalars
from penstock.execute.emit import Source
from penstock.execute.layout import ENGINE_REASONS, FULL, FULL_LOG
from penstock.plan.ir import ROW, Block, Op, Plan, walk
from penstock.plan.records import stored_default
from penstock.state.lanes import constant


class Emitter:
    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.numbers = {t.name: n for n, t in enumerate(plan.program.tables)}
        self.reasons: list[str] = []
        self.literals: list[str] = []
        self.undo_codes: list[tuple[str, str]] = []
        self.checked = 0
        self.prefix = ""
        self.event = 0
        self.fields: dict[str, int] = {}
        self.text: dict[int, str] = {}
        self.types: dict[int, Type] = {}
        self.lists: dict[int, str] = {}
        self.self_row = ""
        self.in_loop = 0
        self.logs_touched = False

    # -- names ------------------------------------------------------------------------------

    def val(self, id_: int) -> str:
        return self.text.get(id_) or f"{self.prefix}v{id_}"

    def row(self, id_: int) -> str:
        return f"{self.prefix}x{id_}"

    def reason(self, text: str) -> int:
        if text in ENGINE_REASONS:
            return ENGINE_REASONS.index(text) + 1
        if text not in self.reasons:
            self.reasons.append(text)
        return len(ENGINE_REASONS) + self.reasons.index(text) + 1

    def literal(self, text: str) -> str:
        if text not in self.literals:
            self.literals.append(text)
        return f"literals[{self.literals.index(text)}]"

    def constant(self, value: object, type_: Type) -> str:
        if type_.kind == "str":
            return self.literal(str(value))
        return emit.number(constant(value, type_))

    def abort(self, out: Source, test: str, reason: str) -> None:
        out.line(f"if {test}:")
        with out.indented():
            out.line(f"c = {self.reason(reason)}")
            out.line("break")

    # -- blocks -----------------------------------------------------------------------------

    def block(self, out: Source, block: Block, event: int, fields: list[tuple[str, int]]) -> None:
        self.prefix, self.event, self.fields = "", event, dict(fields)
        self.begin(block)
        # Checks of records written in a loop need the list of those records; straight-line code knows them.
        self.logs_touched = any(
            inner.code in ("write", "insert", "ensure") and self.plan.checks_of(inner.table)
            for op in block.ops
            if op.is_loop
            for inner in walk(op.body)
        )
        self.ops(out, block.ops)

    def begin(self, block: Block) -> None:
        self.text, self.types, self.lists = {}, {}, {}
        for op in block.walk():
            if op.type is not None:
                self.types[op.id] = op.type
            for carry in op.carries:
                self.types[carry.id] = carry.type
            if op.code == "const":
                assert op.type is not None
                self.text[op.id] = self.constant(op.const, op.type)
            if op.code == "list":
                self.lists[op.id] = f"e{self.event}_{op.name}"

    def ops(self, out: Source, ops: tuple[Op, ...]) -> None:
        for guard, group in groupby((op for op in ops if op.code != "const"), key=lambda op: op.guard):
            several = list(group)
            if guard is None:
                for op in several:
                    self.op(out, op)
                continue
            for op in several:
                self.zeros(out, op)
            out.line(f"if {self.val(guard)}:")
            with out.indented():
                for op in several:
                    self.op(out, op)

    def zeros(self, out: Source, op: Op) -> None:
        """Define what an operation makes, in case its guard does not hold."""
        if op.code == "list":
            out.line(f"{self.val(op.id)}_at = 0")
            out.line(f"{self.val(op.id)}_n = 0")
        elif op.type == ROW:
            out.line(f"{self.val(op.id)} = -1")
            out.line(f"{self.row(op.id)} = np.uint64(0)")
        elif op.type is not None:
            out.line(f"{self.val(op.id)} = {emit.zero(op.type)}")
        for carry in op.carries:
            out.line(f"{self.val(carry.id)} = {emit.zero(carry.type)}")

    def op(self, out: Source, op: Op) -> None:
        v = self.val(op.id)
        match op.code:
            case "self":
                out.line(f"{self.row(op.id)} = {self.self_row}")
            case "field":
                if op.const:
                    self.null_test(out, op)
                out.line(f"{v} = e{self.event}_{op.name}[j]")
            case "list":
                self.null_test(out, op)
                at = f"e{self.event}_{op.name}_at"
                out.line(f"{v}_at = np.int64({at}[j])")
                out.line(f"{v}_n = np.int64({at}[j + ONE]) - {v}_at")
            case "len":
                out.line(f"{v} = {self.val(op.args[0])}_n")
            case "item":
                pass  # bound by its loop
            case "each" | "range":
                self.loop(out, op)
            case "abort":
                out.line(f"c = {self.reason(op.name)}")
                out.line("break")
            case "give":
                self.give(out, op)
            case "udf":
                args = ", ".join(self.val(a) for a in op.args)
                out.line(f"ok, {v} = udf_{op.name}({args})")
                self.abort(out, "not ok", f"udf {op.name} failed")
            case "find" | "locate" | "ensure" | "insert" | "delete" | "read" | "read_or" | "write" | "present":
                self.record_op(out, op)
            case _:
                scalars.emit(self, out, op)

    def null_test(self, out: Source, op: Op) -> None:
        name = f"e{self.event}_{op.name}_ok"
        self.abort(out, f"{name}_any and not {name}[j]", f"null {op.name}")

    def give(self, out: Source, op: Op) -> None:
        if self.prefix:
            out.line(f"{self.prefix}holds = {self.val(op.args[0])}")
        else:
            out.line(f"r_{self.fields[op.name]} = {self.val(op.args[0])}")
            out.line(f"s_{self.fields[op.name]} = True")

    # -- loops ------------------------------------------------------------------------------

    def loop(self, out: Source, op: Op) -> None:
        turn, count = f"q{op.id}", f"m{op.id}"
        for carry in op.carries:
            out.line(f"{self.val(carry.id)} = {self.val(carry.init)}")
        if op.code == "each":
            lengths = [f"{self.val(a)}_n" for a in op.args]
            out.line(f"{count} = {lengths[0]}")
            for one in lengths[1:]:
                out.line(f"{count} = min({count}, {one})")
        else:
            scalars.range_count(out, count, self.val(op.args[0]), self.val(op.args[1]), op.const)
        out.line(f"for {turn} in range({count}):")
        self.in_loop += 1
        with out.indented():
            for item in (o for o in op.body if o.code == "item"):
                source = op.args[item.const]
                if op.code == "each":
                    lane = self.lists[source]
                    out.line(f"{self.val(item.id)} = {lane}[{self.val(source)}_at + {turn}]")
                else:
                    out.line(f"{self.val(item.id)} = {self.val(op.args[0])} + {turn} * {op.const}")
            self.ops(out, op.body)
            self.next_turn(out, op)
            if not op.body and not op.carries:
                out.line("pass")
        self.in_loop -= 1
        if any(inner.may_abort for inner in op.body) or self.pushes(op):
            out.line("if c != 0:")
            with out.indented():
                out.line("break")

    def next_turn(self, out: Source, op: Op) -> None:
        moved = [(self.val(c.id), self.val(c.next)) for c in op.carries if c.id != c.next]
        # The end is tested before the carries move: it speaks of this turn's values.
        if op.until is not None:
            out.line(f"until{op.id} = {self.val(op.until)}")
        if moved:
            out.line(f"{', '.join(a for a, _ in moved)} = {', '.join(b for _, b in moved)}")
        if op.until is not None:
            out.line(f"if until{op.id}:")
            with out.indented():
                out.line("break")

    def pushes(self, op: Op) -> bool:
        return any(inner.code in ("write", "insert", "ensure", "delete") for inner in walk(op.body))

    # -- records ----------------------------------------------------------------------------

    def record_op(self, out: Source, op: Op) -> None:
        v = self.val(op.id)
        if op.code == "present":
            out.line(f"{v} = {self.val(op.args[0])} >= 0")
            return
        table = self.plan.table(op.table)
        t = f"t{self.numbers[op.table]}"
        if op.code in ("read", "read_or", "write"):
            self.column_op(out, op, table, t)
            return
        keys = [self.val(a) for a in op.args[: len(table.keys)]]
        self.room(out, op)
        self.probe(out, t, keys)
        match op.code:
            case "find" | "locate":
                if op.code == "locate":
                    self.abort(out, "r < 0", f"missing {op.table}")
                out.line(f"{v} = r")
                out.line(f"{self.row(op.id)} = np.uint64(r)")
            case "insert":
                self.abort(out, "r >= 0", f"exists {op.table}")
                self.place(out, op, table, t, keys, [self.val(a) for a in op.args[len(keys) :]])
            case "ensure":
                defaults = [self.constant(stored_default(c), c.type) for c in table.values]
                out.line("if r < 0:")
                with out.indented():
                    self.place(out, op, table, t, keys, defaults)
                out.line("else:")
                with out.indented():
                    out.line(f"{v} = r")
                    out.line(f"{self.row(op.id)} = np.uint64(r)")
                self.note(out, op, self.row(op.id))
            case "delete":
                self.abort(out, "r < 0", f"missing {op.table}")
                self.kill(out, op, t)

    def probe(self, out: Source, t: str, keys: list[str]) -> None:
        """Leaves h at the key's slot (or the empty one for it), r what it holds, and tag its tag."""
        if len(keys) == 1:
            out.line(f"tag = np.int64({keys[0]})")
            out.line(f"h = first(tag, {t}_slots)")
            # An empty slot may still hold the tag of what was there: then it is the slot for this key.
            out.line(f"while {t}_slots[h] != tag and {t}_slots[h + ONE] != -1:")
            with out.indented():
                out.line(f"h = (h + TWO) & {t}_mask")
            out.line(f"r = {t}_slots[h + ONE]")
            return
        out.line("tag = np.int64(0)")
        for key in keys:
            out.line(f"tag = combine(tag, {key})")
        out.line(f"h = first(tag, {t}_slots)")
        out.line("while True:")
        with out.indented():
            out.line(f"r = {t}_slots[h + ONE]")
            out.line("if r == -1:")
            with out.indented():
                out.line("break")
            out.line(f"if {t}_slots[h] == tag:")
            with out.indented():
                out.line("at = np.uint64(r if r >= 0 else -2 - r)")
                out.line(f"if {' and '.join(f'{t}_k{k}[at] == {key}' for k, key in enumerate(keys))}:")
                with out.indented():
                    out.line("break")
            out.line(f"h = (h + TWO) & {t}_mask")

    def place(self, out: Source, op: Op, table: TableDef, t: str, keys: list[str], values: list[str]) -> None:
        """Put a record at the slot h that probe found: on its own dead row, a freed one or a new one."""
        n = t[1:]
        x = self.row(op.id)
        out.line("if r == -1:")
        with out.indented():
            out.line(f"if u{n} >= {t}_written.size:")
            with out.indented():
                out.line(f"info[0] = {n}")
                out.line(f"c = {FULL}")
                out.line("break")
            out.line(f"u{n} += 1")
            out.line(f"if f{n} > 0:")
            with out.indented():
                out.line(f"f{n} -= 1")
                out.line(f"r = {t}_free[f{n}]")
            out.line("else:")
            with out.indented():
                out.line(f"r = n{n}")
                out.line(f"n{n} += 1")
            out.line(f"{t}_slots[h] = tag")
            for k, key in enumerate(keys):
                out.line(f"{t}_k{k}[np.uint64(r)] = {key}")
        out.line("else:")
        with out.indented():
            out.line("r = -2 - r")
        out.line(f"{self.val(op.id)} = r")
        out.line(f"{x} = np.uint64(r)")
        out.line(f"{t}_slots[h + ONE] = r")
        out.line(f"{t}_flags[{x}] |= np.uint8(1)")
        if op.undo:
            self.push(out, op.table, "exists", "h", "0")
        self.touch(out, op, x, t)
        for k, value in enumerate(values):
            self.store(out, op, t, k, table.values[k].type, x, value)
        if op.code == "insert":
            self.note(out, op, x)

    def kill(self, out: Source, op: Op, t: str) -> None:
        out.line("x = np.uint64(r)")
        out.line(f"{t}_slots[h + ONE] = -2 - r")
        self.bury(out, t, "x")
        if op.undo:
            self.push(out, op.table, "exists", "h", "0")
        self.touch(out, op, "x", t)

    def bury(self, out: Source, t: str, x: str) -> None:
        """A row dies; list it once among the batch's graves."""
        n = t[1:]
        out.line(f"if {t}_flags[{x}] & np.uint8(2) == 0:")
        with out.indented():
            out.line(f"{t}_graves[g{n}] = np.int64({x})")
            out.line(f"g{n} += 1")
        out.line(f"{t}_flags[{x}] = np.uint8(2)")

    def column_op(self, out: Source, op: Op, table: TableDef, t: str) -> None:
        x = self.row(op.args[0])
        keys = [c.name for c in table.keys]
        if op.name in keys:
            out.line(f"{self.val(op.id)} = {t}_k{keys.index(op.name)}[{x}]")
            return
        k = [c.name for c in table.values].index(op.name)
        column = table.values[k]
        if op.code == "write":
            self.room(out, op)
            self.touch(out, op, x, t)
            self.store(out, op, t, k, column.type, x, self.val(op.args[1]))
            self.note(out, op, x)
        elif op.code == "read":
            out.line(f"{self.val(op.id)} = {t}_c{k}[{x}]")
        else:
            default = self.constant(stored_default(column), column.type)
            out.line(f"{self.val(op.id)} = {t}_c{k}[{x}] if {self.val(op.args[0])} >= 0 else {default}")

    def touch(self, out: Source, op: Op, x: str, t: str) -> None:
        """The first write to a record in this batch makes it dirty; no branch, since no guess would be good."""
        n = t[1:]
        out.line(f"before = {t}_written[{x}]")
        if op.undo:
            self.push(out, op.table, "written", x, "before")
        out.line(f"{t}_written[{x}] = batch")
        out.line(f"{t}_dirty[d{n}] = np.int64({x})")
        out.line(f"d{n} += before != batch")

    def store(self, out: Source, op: Op, t: str, k: int, type_: Type, x: str, value: str) -> None:
        if op.undo:
            old = f"{t}_b{k}[{x}]" if type_.kind == "float" else f"np.int64({t}_c{k}[{x}])"
            self.push(out, op.table, f"column{k}", x, old)
        out.line(f"{t}_c{k}[{x}] = {value}")

    # -- undo -------------------------------------------------------------------------------

    def room(self, out: Source, op: Op) -> None:
        """Straight-line code cannot fill the log; a loop can."""
        if not self.in_loop or op.code in ("find", "locate"):
            return
        most = len(self.plan.table(op.table).values) + 4
        out.line(f"if nu + {most} > undo_what.size or nt + 2 > touched.size:")
        with out.indented():
            out.line(f"info[0] = {FULL_LOG}")
            out.line(f"c = {FULL}")
            out.line("break")

    def push(self, out: Source, table: str, part: str, at: str, old: str) -> None:
        if (table, part) not in self.undo_codes:
            self.undo_codes.append((table, part))
        out.line(f"undo_what[nu] = {self.undo_codes.index((table, part))}")
        out.line(f"undo_at[nu] = np.int64({at})")
        out.line(f"undo_old[nu] = {old}")
        out.line("nu += 1")

    def undo_one(self, out: Source, table: str, part: str) -> None:
        definition = self.plan.table(table)
        t = f"t{self.numbers[table]}"
        if part == "written":
            out.line(f"{t}_written[at] = old")
        elif part == "exists":
            out.line(f"r = {t}_slots[at + ONE]")
            out.line(f"{t}_slots[at + ONE] = -2 - r")
            out.line("if r >= 0:")
            with out.indented():
                out.line("x = np.uint64(r)")
                self.bury(out, t, "x")
            out.line("else:")
            with out.indented():
                out.line(f"{t}_flags[np.uint64(-2 - r)] |= np.uint8(1)")
        else:
            k = int(part.removeprefix("column"))
            kind = definition.values[k].type.kind
            target = f"{t}_b{k}" if kind == "float" else f"{t}_c{k}"
            out.line(f"{target}[at] = old{' != 0' if kind == 'bool' else ''}")

    # -- checks -----------------------------------------------------------------------------

    def note(self, out: Source, op: Op, x: str) -> None:
        """Remember a written record for the checks at the end."""
        if self.logs_touched and self.plan.checks_of(op.table):
            out.line(f"touched[nt] = {self.numbers[op.table]}")
            out.line(f"touched[nt + 1] = np.int64({x})")
            out.line("nt += 2")

    def checks(self, out: Source, block: Block) -> None:
        """Every check of every record that the transaction wrote and that is still there."""
        if self.logs_touched:
            self.checks_of_touched(out, block)
            return
        deleted = {op.table for op in block.walk() if op.code == "delete"}
        seen = set()
        for op in block.ops:
            if op.code not in ("write", "insert", "ensure") or not self.plan.checks_of(op.table):
                continue
            row_id = op.args[0] if op.code == "write" else op.id
            if (row_id, op.guard) in seen or (row_id, None) in seen:
                continue
            seen.add((row_id, op.guard))
            x = f"x{row_id}"
            tests = [f"v{op.guard}"] if op.guard is not None else []
            if op.table in deleted:
                tests.append(f"t{self.numbers[op.table]}_flags[{x}] & np.uint8(1) != 0")
            if tests:
                guard = self.guard_text(block, op.guard)
                out.line(f"if {' and '.join([guard, *tests[1:]] if op.guard is not None else tests)}:")
            with out.indented() if tests else _same():
                self.checks_of_row(out, op.table, x)

    def guard_text(self, block: Block, guard: int | None) -> str:
        const = next((o for o in block.walk() if o.id == guard and o.code == "const"), None)
        return repr(const.const) if const is not None else f"v{guard}"

    def checks_of_touched(self, out: Source, block: Block) -> None:
        tables = {op.table for op in block.walk() if op.code in ("write", "insert", "ensure")}
        out.line("for w in range(0, nt, 2):")
        with out.indented():
            out.line("xw = np.uint64(touched[w + 1])")
            for table in sorted(t for t in tables if self.plan.checks_of(t)):
                n = self.numbers[table]
                out.line(f"if touched[w] == {n} and t{n}_flags[xw] & np.uint8(1) != 0:")
                with out.indented():
                    self.checks_of_row(out, table, "xw")
        out.line("if c != 0:")
        with out.indented():
            out.line("break")

    def checks_of_row(self, out: Source, table: str, x: str) -> None:
        kept = (self.prefix, self.text, self.types, self.lists, self.in_loop)
        for check in self.plan.checks_of(table):
            self.checked += 1
            self.prefix, self.self_row = f"w{self.checked}_", x
            self.begin(check.block)
            out.line(f"{self.prefix}holds = False")
            self.ops(out, check.block.ops)
            self.abort(out, f"not {self.prefix}holds", check.text)
        self.prefix, self.text, self.types, self.lists, self.in_loop = kept


class _same:
    """No indent, where there is no `if`."""

    def __enter__(self) -> None:
        return None

    def __exit__(self, *_: object) -> None:
        return None
