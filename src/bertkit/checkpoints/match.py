"""Does a file fit a model class? One table of tensors, used to load, to explain errors, and by ``inspect``."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import Enum
from typing import NamedTuple

from bertkit.checkpoints.rules import ClassSpec, ModelConfig, NameTable, Rule
from bertkit.checkpoints.safetensors_format import TensorInfo

FLOAT_TYPES = ("F32", "F16", "BF16", "F64")


class Status(Enum):
    """The outcome for one tensor."""

    EXACT = "exact"
    NEW = "new"
    ZERO = "zero"
    TIED = "tied"
    UNUSED = "unused"
    IGNORED = "ignored"
    MISSING = "missing"
    MISSHAPED = "mis-shaped"
    WRONG_TYPE = "of a wrong type"
    UNEXPECTED = "unexpected"


PROBLEMS = (Status.MISSING, Status.MISSHAPED, Status.WRONG_TYPE, Status.UNEXPECTED)


class Row(NamedTuple):
    """One tensor of the model, or one of the file without a place in the model, whose ``ours`` is empty.

    theirs: names in the file (if missing: the expected names). shape: in the model, otherwise in the file.
    dtype: in the file, empty if it is not there. part: of the name table, or "unknown".
    """

    status: Status
    ours: str
    theirs: tuple[str, ...]
    shape: tuple[int, ...]
    dtype: str
    part: str
    note: str = ""


class Match(NamedTuple):
    """The table of one file and one class."""

    spec: ClassSpec
    table: NameTable
    config: ModelConfig
    rows: tuple[Row, ...]
    new_parts: tuple[str, ...]
    has_pooler: bool

    def of(self, *statuses: Status) -> list[Row]:
        """Rows with one of these statuses."""
        return [row for row in self.rows if row.status in statuses]

    @property
    def problems(self) -> tuple[Row, ...]:
        """Rows that prevent loading; empty if the file fits."""
        return tuple(self.of(*PROBLEMS))

    @property
    def exact(self) -> tuple[str, ...]:
        """Tensors of the model that are in the file."""
        return tuple(row.ours for row in self.of(Status.EXACT))

    @property
    def new(self) -> tuple[str, ...]:
        """Tensors of the model that are initialized at random because a new head was asked for."""
        return tuple(row.ours for row in self.of(Status.NEW))

    @property
    def unused(self) -> tuple[str, ...]:
        """Tensors of the file that the class does not have: heads of other classes, and names that no table knows."""
        return tuple(name for row in self.of(Status.UNUSED) for name in row.theirs)

    def __str__(self) -> str:
        counts = {"exact": len(self.exact), "new": len(self.new), "unused in the file": len(self.unused)}
        return f"{self.spec.name}: " + ", ".join(f"{count} {what}" for what, count in counts.items())


def match(
    tensors: Mapping[str, TensorInfo],
    config: ModelConfig,
    spec: ClassSpec,
    table: NameTable,
    *,
    labels: bool = False,
    new_head: bool = False,
) -> Match:
    """Compare the tensors of a file with what a class of this config, labels of a new head included, needs.

    ``labels``: ``num_labels=`` or ``id2label=`` asks for a new head if the file has none. ``new_head``: a new head
    whatever the file has; for a class without heads, a new pooler if the file has none.
    """
    return _Matcher(tensors, config, spec, table).match(labels and spec.label_head, new_head)


def saved_as(
    tensors: Mapping[str, TensorInfo], config: ModelConfig, specs: Iterable[ClassSpec], table: NameTable
) -> ClassSpec | None:
    """The first of ``specs``, the classes that a file's config names, whose tensors the file holds exactly."""
    return next((spec for spec in specs if not match(tensors, config, spec, table).problems), None)


class _Matcher:
    """Goes through the names of the file and removes each that has a place in the model."""

    def __init__(
        self, tensors: Mapping[str, TensorInfo], config: ModelConfig, spec: ClassSpec, table: NameTable
    ) -> None:
        self.config, self.spec, self.table = config, spec, table
        self.letters = table.sizes(config, spec)
        self.rows: list[Row] = []
        self.left: dict[str, TensorInfo] = {}  # by canonical name
        self.prefix = ""
        for name, info in sorted(tensors.items()):
            canonical = table.canonical(name)
            if name.startswith(table.prefix):
                self.prefix = table.prefix
            if canonical in self.left:
                first = self.left[canonical].name
                self.rows.append(surplus(info, Status.UNEXPECTED, note=f"a second name for {first}"))
            else:
                self.left[canonical] = info
        for name, original in table.ties:  # a file may hold only the copy
            if name in self.left and original not in self.left:
                self.left[original] = self.left.pop(name)
        self.known = {name: part for part in table.parts for rule in table.rules(part, config) for name in rule.theirs}

    def match(self, labels: bool, new_head: bool) -> Match:
        """The result of :func:`match`; call it once."""
        spec = self.spec
        new_parts = tuple(part for part in spec.heads if self._is_new(part, labels, new_head))
        parts = ["encoder", *spec.heads]
        has_pooler = spec.pooler and (bool(spec.heads) or new_head or self._has_any("pooler"))
        if has_pooler:
            parts.insert(1, "pooler")
            if (new_parts or new_head) and not self._has_any("pooler"):
                new_parts = ("pooler", *new_parts)
        kept = dict(self.left)
        for part in parts:
            rules = self.table.rules(part, self.config)
            self.rows += [self._row(rule, part, is_new=part in new_parts) for rule in rules]
        used = kept.keys() - self.left.keys()
        self._ties(kept, used, new_parts)
        copies = dict(self.table.ties)
        for name, info in sorted(self.left.items()):
            part = self.known.get(name) or ("masked-lm head" if name in copies else "unknown")
            if name in self.table.ignored:
                self.rows.append(surplus(info, Status.IGNORED, note="without effect"))
            elif part == "unknown" and name.startswith(self.table.roots + ((self.table.prefix,) * bool(self.prefix))):
                self.rows.append(surplus(info, Status.UNEXPECTED))
            else:
                self.rows.append(surplus(info, part=part))
        return Match(spec, self.table, self.config, tuple(self.rows), new_parts, has_pooler)

    def _is_new(self, part: str, labels: bool, new_head: bool) -> bool:
        """Whether a head is initialized; a layer that the heads of a family share is kept if the file has it."""
        if part in self.table.prefixed:
            return False
        if part == "head layer":
            return (labels or new_head) and not self._has_any(part)
        return new_head or (labels and (not self._has_any(part) or self._owner(part) is not None))

    def _owner(self, part: str) -> str | None:
        """The other class that the classifier in the file belongs to: the same names with another meaning."""
        names, classes = self.config.architectures or [], self.table.classes
        if "classifier" not in part or self.spec.name in names:
            return None
        wanted = self._names(part)
        owners = (name for name in names if name in classes)
        return next((name for name in owners if any(wanted & self._names(head) for head in classes[name].heads)), None)

    def _names(self, part: str) -> set[str]:
        return {name for rule in self.table.parts[part] for name in rule.theirs}

    def _has_any(self, part: str) -> bool:
        return not self._names(part).isdisjoint(self.left)

    def _stands_for_zeros(self, name: str) -> bool:
        """Whether the file has neither this tensor nor the head of another class."""
        others = self.table.parts.keys() - {"encoder", *self.spec.parts}
        return name not in self.left and not any(self._has_any(part) for part in others)

    def _row(self, rule: Rule, part: str, *, is_new: bool) -> Row:
        """Take the tensors of a rule out of the file and compare them; those of a new part are not looked for."""
        ours = self.table.written_prefix(part, self.spec.base_prefix) + rule.ours
        shape, wanted, owner = rule.our_shape(self.letters), rule.their_shape(self.letters), self._owner(part)
        if rule.theirs[0] in self.table.zeros and (is_new or self._stands_for_zeros(rule.theirs[0])):
            return Row(Status.ZERO, ours, (), shape, "", part, "zero where the file has none")
        if is_new:
            return Row(Status.NEW, ours, (), shape, "", part)
        written = tuple((self.prefix if part in self.table.prefixed else "") + name for name in rule.theirs)
        if owner is not None and self._has_any(part):
            return Row(Status.MISSING, ours, written, shape, "", part, f"the one in the file belongs to {owner}")
        found = [self.left.pop(name, None) for name in rule.theirs]
        infos = [info for info in found if info is not None]
        if len(infos) < len(found):
            absent = tuple(name for name, info in zip(written, found, strict=True) if info is None)
            return Row(Status.MISSING, ours, absent, wanted, "", part)
        names, dtype = tuple(info.name for info in infos), "/".join(sorted({info.dtype for info in infos}))
        for info in infos:
            if info.dtype not in FLOAT_TYPES:
                note = f"the file has {info.dtype}, expected one of {', '.join(FLOAT_TYPES)}"
                return Row(Status.WRONG_TYPE, ours, (info.name,), shape, info.dtype, part, note)
            if info.shape != wanted:
                note = f"the file has {list(info.shape)}, the config asks for {list(wanted)}"
                return Row(Status.MISSHAPED, ours, (info.name,), shape, dtype, part, note)
        return Row(Status.EXACT, ours, names, shape, dtype, part)

    def _ties(self, kept: Mapping[str, TensorInfo], used: Iterable[str], new_parts: Iterable[str]) -> None:
        """A tied copy must have the shape of its original (and its values, compared when they are read)."""
        for name, original in self.table.ties:
            usual = self.known[original] if self.known[original] != "encoder" else "masked-lm head"
            head = self.table.tied_parts.get(name, usual)
            if name not in self.left or original not in used or head not in ("encoder", *self.spec.heads):
                continue
            if head in new_parts:
                continue
            info, twin = self.left.pop(name), kept[original]
            same = info.shape == twin.shape and info.dtype == twin.dtype
            note = f"tied to {twin.name}" if same else f"differs from {twin.name} in shape or type"
            status = Status.TIED if same else Status.MISSHAPED
            pair = (info.name, twin.name) if same else (info.name,)
            self.rows.append(Row(status, "", pair, info.shape, info.dtype, head, note))


def surplus(info: TensorInfo, status: Status = Status.UNUSED, part: str = "unknown", note: str = "") -> Row:
    """The row of a tensor that is only in the file."""
    return Row(status, "", (info.name,), info.shape, info.dtype, part, note)
