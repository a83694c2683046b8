"""The legal order of events, checked in the simplest way: what `core/events.py` promises for every stream."""

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
from penstock.core.repairs import FAULTS, REPAIRS


def violations(events: list[Event]) -> list[str]:
    """Every way in which the events of one whole stream break the promised order."""
    broken: list[str] = []
    kinds = [type(event) for event in events]
    broken += [f"more than one {kind.__name__}" for kind in (Start, Fault, UsageReport) if kinds.count(kind) > 1]
    if kinds.count(End) != 1 or kinds[-1] is not End:
        broken.append("not exactly one End, at the end")
    begun: set[int] = set()
    finished: set[int] = set()
    calls: dict[int, int] = {}
    blocks: dict[int, dict[int, bool]] = {}
    started = failed = False
    for event in events:
        match event:
            case Repair(code):
                if code not in REPAIRS:
                    broken.append(f"unknown repair {code}")
                continue
            case Start():
                started = True
            case Fault(code):
                failed = True
                if code not in FAULTS:
                    broken.append(f"unknown fault {code}")
            case ChoiceStart(choice):
                if choice in begun:
                    broken.append(f"choice {choice} begins twice")
                begun.add(choice)
            case TextDelta(choice, text) | ReasoningDelta(choice, text) | RefusalDelta(choice, text):
                if not text:
                    broken.append("empty delta")
                broken.extend(_speech(choice, begun, finished))
            case ToolCallStart(choice, call, block=block):
                if block is not None:
                    broken.extend(_block_start(blocks.setdefault(choice, {}), block, is_call=True))
                if call != calls.get(choice, 0):
                    broken.append(f"call {call} of choice {choice} is out of order")
                calls[choice] = call + 1
                broken.extend(_speech(choice, begun, finished))
            case ToolCallDelta(choice, call, arguments):
                if call >= calls.get(choice, 0) or not arguments:
                    broken.append(f"arguments of choice {choice} for call {call}, which has not begun, or none")
                broken.extend(_speech(choice, begun, finished))
            case BlockStart(choice, block):
                broken.extend(_block_start(blocks.setdefault(choice, {}), block, is_call=False))
                broken.extend(_speech(choice, begun, finished))
            case BlockEnd(choice, block):
                if blocks.get(choice, {}).pop(block, None) is None:
                    broken.append(f"block {block} of choice {choice} ends, though it is not open")
            case MediaDelta(choice) | Seal(choice) | Annotation(choice):
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


def _block_start(open_blocks: dict[int, bool], block: int, *, is_call: bool) -> list[str]:
    others = not all(open_blocks.values())
    open_blocks[block] = is_call
    return [f"block {block} begins while another one is open"] if others else []


def _speech(choice: int, begun: set[int], finished: set[int]) -> list[str]:
    if choice not in begun:
        return [f"choice {choice} speaks before it begins"]
    return [f"choice {choice} speaks after it finished"] if choice in finished else []
