"""The legal order of events, checked in the simplest way: what `core/hub/events.py` promises for every stream."""

from penstock import (
    Annotation,
    BlockEnd,
    BlockStart,
    ChoiceStart,
    End,
    Event,
    Extra,
    Fault,
    Finish,
    MediaDelta,
    ReasoningDelta,
    RefusalDelta,
    Repair,
    Seal,
    Start,
    TextDelta,
    ToolCallDelta,
    ToolCallStart,
    UsageReport,
)
from penstock.core.hub.repairs import FAULTS, REPAIRS

_KINDS: dict[type[Event], str] = {TextDelta: "text", ReasoningDelta: "reasoning", RefusalDelta: "refusal"}


def violations(events: list[Event]) -> list[str]:
    """Every way in which the events of one whole stream break the promised order."""
    broken: list[str] = []
    kinds = [type(event) for event in events]
    broken += [f"more than one {kind.__name__}" for kind in (Fault, UsageReport) if kinds.count(kind) > 1]
    if kinds.count(End) != 1 or kinds[-1] is not End:
        broken.append("not exactly one End, at the end")
    begun: set[int] = set()
    finished: set[int] = set()
    calls: dict[int, int] = {}
    blocks: dict[int, dict[int, str]] = {}
    started = failed = False
    for event in events:
        match event:
            case Repair(code):
                if code not in REPAIRS:
                    broken.append(f"unknown repair {code}")
                continue
            case Start(takes_over=takes_over):
                if started != takes_over:
                    broken.append("a second Start, or a model takes over before the first")
                started = True
            case Fault(code, message):
                failed = True
                if message.endswith("a block that is not open"):
                    broken.append(f"the reader gives content that has no place: {message}")
                if code not in FAULTS:
                    broken.append(f"unknown fault {code}")
            case ChoiceStart(choice):
                if choice in begun:
                    broken.append(f"choice {choice} begins twice")
                begun.add(choice)
            case TextDelta(choice, text) | ReasoningDelta(choice, text) | RefusalDelta(choice, text):
                if not text:
                    broken.append("empty delta")
                if choice in blocks and _KINDS[type(event)] not in blocks[choice].values():
                    broken.append(f"{type(event).__name__} in no block of its kind")
                broken.extend(_speech(choice, begun, finished))
            case ToolCallStart(choice, call, block=block):
                if block is not None:
                    broken.extend(_block_start(blocks.setdefault(choice, {}), block, f"call {call}"))
                if call != calls.get(choice, 0):
                    broken.append(f"call {call} of choice {choice} is out of order")
                calls[choice] = call + 1
                broken.extend(_speech(choice, begun, finished))
            case ToolCallDelta(choice, call, arguments):
                if call >= calls.get(choice, 0) or not arguments:
                    broken.append(f"arguments of choice {choice} for call {call}, which has not begun, or none")
                if choice in blocks and f"call {call}" not in blocks[choice].values():
                    broken.append(f"arguments of choice {choice} for call {call}, whose block has ended")
                broken.extend(_speech(choice, begun, finished))
            case BlockStart(choice, block, kind):
                broken.extend(_block_start(blocks.setdefault(choice, {}), block, kind))
                broken.extend(_speech(choice, begun, finished))
            case BlockEnd(choice, block):
                if blocks.get(choice, {}).pop(block, None) is None:
                    broken.append(f"block {block} of choice {choice} ends, though it is not open")
            case MediaDelta(choice, block):
                if block not in blocks.get(choice, {}):
                    broken.append(f"media of block {block} of choice {choice}, which is not open")
                broken.extend(_speech(choice, begun, finished))
            case Seal(choice) | Annotation(choice):
                broken.extend(_speech(choice, begun, finished))
            case Finish(choice, reason):
                if blocks.get(choice):
                    broken.append(f"choice {choice} finishes with open blocks")
                if choice not in begun or choice in finished or not reason:
                    broken.append(f"choice {choice} finishes out of order")
                finished.add(choice)
            case End(ending):
                whole = bool(begun) and begun == finished and not failed
                if ending == "completed" and not whole:
                    broken.append("completed, though not every choice that began is finished")
                if (ending == "failed") != failed:
                    broken.append(f"{ending}, with{'' if failed else 'out'} a fault")
            case Extra() | UsageReport():
                pass
        if not started and not isinstance(event, Start | Fault | End | UsageReport):
            broken.append(f"{type(event).__name__} before Start")
        if failed and not isinstance(event, Fault | UsageReport | End):
            broken.append(f"{type(event).__name__} after the fault")
    return broken


def overlaps(events: list[Event]) -> list[str]:
    """Every way in which blocks are not one after the other, or not named, as `core/hub/blocks.py` promises."""
    broken: list[str] = []
    open_blocks: dict[int, tuple[int, object] | None] = {}
    numbers: dict[int, set[int]] = {}
    for event in events:
        match event:
            case BlockStart(choice, int(block)) | ToolCallStart(choice, block=int(block)):
                if open_blocks.get(choice) is not None or block in numbers.get(choice, ()):
                    broken.append(f"block {block} starts again, or while {open_blocks[choice]} is open")
                numbers.setdefault(choice, set()).add(block)
                open_blocks[choice] = block, event.call if isinstance(event, ToolCallStart) else event.kind
            case ToolCallStart():
                broken.append("a call without a block")
            case TextDelta(choice) | ReasoningDelta(choice) | RefusalDelta(choice):
                if open_blocks.get(choice) != (event.block, _KINDS[type(event)]):
                    broken.append(f"{type(event).__name__} while {open_blocks.get(choice)} is open")
            case ToolCallDelta(choice, call):
                if open_blocks.get(choice) != (event.block, call):
                    broken.append(f"arguments of call {call} while {open_blocks.get(choice)} is open")
            case BlockEnd(choice, block) | MediaDelta(choice, block):
                if (open_blocks.get(choice) or (None,))[0] != block:
                    broken.append(f"{type(event).__name__} of block {block} while {open_blocks.get(choice)} is open")
                if isinstance(event, BlockEnd):
                    open_blocks[choice] = None
            case Finish(choice):
                if open_blocks.get(choice) is not None:
                    broken.append(f"choice {choice} finishes while {open_blocks[choice]} is open")
            case _:
                pass
    return broken


def _block_start(open_blocks: dict[int, str], block: int, kind: str) -> list[str]:
    others = not all(each.startswith("call") for each in open_blocks.values())
    open_blocks[block] = kind
    return [f"block {block} begins while another one is open"] if others else []


def _speech(choice: int, begun: set[int], finished: set[int]) -> list[str]:
    if choice not in begun:
        return [f"choice {choice} speaks before it begins"]
    return [f"choice {choice} speaks after it finished"] if choice in finished else []
