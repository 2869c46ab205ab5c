"""Whose calls are on a loop that works for several requests at once: chains of calls, drawn.

One thread receives requests, asks others, takes results and answers. It goes round: what was
received or came back in one round is acted on some rounds later, as many as the code between takes,
and in the order in which it came. So which call is whose is what makes everything together most
probable: what requests ask one after the other, how many rounds each step takes, and that nothing
overtakes. None of it is known before, all is learned from the recording (expectation maximization,
with Metropolis' exchanges in place of the expectation; several runs, so that where they end up
apart, no answer is called sure).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from functools import cached_property, partial
from itertools import combinations
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

from critpath.model import F64, I32, I64, Bool
from critpath.processes import side_by_side
from critpath.records import dataclass
from critpath.requests._chains import Chains
from critpath.requests.statements import find_holds
from critpath.schema.parameters.requests import CHAINS, OWNERS

if TYPE_CHECKING:
    from critpath.requests.assign import Process

_ROUNDS: Final = 16  # technical: that are told apart, as in `_chains.pyx`
_AT_ONCE: Final = 2  # technical: how a call came by its connection, as in `_chains.pyx`
_OPENS, _SURE = 1, 2  # technical: bits of `Process.asks`
_FLAT: Final = np.array([0.12] * 5 + [0.06] * 5 + [0.016] * 6)  # technical: before any are known


@dataclass(frozen=True, eq=False)
class Loop:
    """What a loop was asked and asks: uses of connections rather than single messages.

    Attributes
    ----------
    calls : int64 [calls, 8]
        Begin, end, how it came by its connection (`_find_waits`), rounds of begin and end, kinds
        of its first and its last message, the pool of its connection.
    requests : int64 [requests, 5]
        Received, answered, the rounds of both, the kind that it begins with.
    use : int64 [asks]
        The call that each of the process's sub-requests is part of; -1 none.
    sure : int64 [calls]
        Whose it is by the rules; -1 where they leave that open.
    kinds, roots : int
        How many kinds of calls, and of requests.
    """

    calls: I64
    requests: I64
    use: I64
    sure: I64
    kinds: int
    roots: int

    def select(self, begin: int, end: int, owner: I64) -> tuple[Loop, I64]:
        """Return the calls between two of them, in order of time, and the requests open then.

        And whose they are, as rows of these requests.
        """
        calls = self.calls[begin:end]
        open_then = (self.requests[:, 0] <= calls[-1, 0]) & (self.requests[:, 1] >= calls[0, 0])
        of = np.where(open_then, np.cumsum(open_then) - 1, -1)
        sure, owner = (np.append(of, -1)[own[begin:end]] for own in (self.sure, owner))
        return Loop(
            calls, self.requests[open_then], self.use[:0], sure, self.kinds, self.roots
        ), owner

    @cached_property
    def candidates(self) -> tuple[I32, I32]:
        """Return where each call's candidates begin, and these: requests that are open then."""
        order = np.argsort(self.requests[:, 0], kind="stable")
        received = self.requests[order, 0]
        until = np.searchsorted(received, self.calls[:, 0], side="right")
        found = []
        for number, (last, begin) in enumerate(
            zip(until.tolist(), self.calls[:, 0].tolist(), strict=True)
        ):
            if len(self.sure) and self.sure[number] >= 0:
                found.append(self.sure[number : number + 1])
                continue
            near = order[max(0, last - CHAINS.open) : last]
            found.append(np.sort(near[self.requests[near, 1] >= begin]))
        first = np.concatenate([[0], np.cumsum([len(own) for own in found])])
        every = np.concatenate(found) if found else np.zeros(0)
        return first.astype(np.int32), every.astype(np.int32)


def read_loop(process: Process) -> Loop | None:
    """Return a process as a loop; None unless one thread does everything, or work wanders."""
    from critpath.requests.assign import What  # noqa: PLC0415 - that module asks this one

    moves = process.what != What.MADE
    threads = process.thread[moves]
    if not len(threads) or not len(process.asks):
        return None
    if len(np.unique(threads)) > 1 and not _wanders(process):
        return None
    what, time, row = process.what[moves], process.time[moves], process.row[moves]
    takes = np.isin(what, (What.RECEIVE, What.RESULT))
    rounds = np.cumsum(takes & np.concatenate([[False], ~takes[:-1]]))
    many = len(process.asks)
    begin, begin_round = (np.zeros(many, np.int64) for _ in range(2))
    asked = what == What.ASK
    begin[row[asked]], begin_round[row[asked]] = time[asked], rounds[asked]
    end, end_round = begin.copy(), begin_round.copy()
    ended = what == What.RESULT
    end[row[ended]], end_round[row[ended]] = time[ended], rounds[ended]
    requests = np.zeros((len(process.root), 5), np.int64)
    for column, of in ((0, What.RECEIVE), (1, What.ANSWERED)):
        rows = what == of
        requests[row[rows], column], requests[row[rows], column + 2] = time[rows], rounds[rows]
    roots, requests[:, 4] = np.unique(process.root, return_inverse=True)
    kind, endpoint, request, bits = process.asks.T.astype(np.int64)
    opens = (bits & _OPENS) > 0
    use = find_uses(kind, endpoint, begin, end, opens)
    if process.says.any():
        told = np.isin(endpoint, endpoint[process.says > 0])
        use = np.where(told, find_holds(endpoint, begin, process.says, opens), use)
    use[request < -1] = -1  # another process's
    named, kinds = np.unique(kind, return_inverse=True)
    heads = np.unique(use[use >= 0])
    heads = heads[np.argsort(begin[heads], kind="stable")]
    last = heads.copy()
    where = np.full(many, -1, np.int64)
    where[heads] = np.arange(len(heads))
    use = np.where(use >= 0, where[use], -1)
    order = np.argsort(begin, kind="stable")
    sure = np.full(len(heads), -1, np.int64)
    for at in order[use[order] >= 0].tolist():
        last[use[at]] = at
        if bits[at] & _SURE and request[at] >= 0:
            sure[use[at]] = request[at]
    calls = np.stack(
        [
            *(begin[heads], end[last], np.zeros(len(heads), np.int64)),
            *(begin_round[heads], end_round[last], kinds[heads], kinds[last]),
            np.zeros(len(heads), np.int64),
        ],
        axis=1,
    )
    _find_waits(calls, endpoint[heads])
    return Loop(calls, requests, use, sure, len(named), len(roots))


def _wanders(process: Process) -> bool:
    """Return whether calls are answered to other threads than asked: a runtime has the loop."""
    from critpath.requests.assign import What  # noqa: PLC0415 - that module asks this one

    by = np.full((2, len(process.asks)), -1)
    for at, what in enumerate((What.ASK, What.RESULT)):
        rows = process.what == what
        by[at, process.row[rows]] = process.thread[rows]
    both = (by >= 0).all(axis=0)
    moved = int((by[0] != by[1])[both].sum())
    return moved > OWNERS.wanders * int(both.sum())


def find_uses(kind: I64, endpoint: I64, begin: I64, end: I64, opens: I64) -> I64:
    """Return the first message of the use of a connection that each belongs to.

    Where one kind is always followed by a certain other on its connection (a query, and what puts
    the connection back as it was), both are one use; so is its opening with what comes first.
    """
    order = np.lexsort((begin, endpoint))
    before, after = order[:-1], order[1:]
    same = endpoint[before] == endpoint[after]
    before, after = before[same], after[same]
    pairs = Counter(zip(kind[before].tolist(), kind[after].tolist(), strict=True))
    follows: Counter[int] = Counter()
    for (one, _), times in pairs.items():
        follows[one] += times
    share = Counter(kind.tolist())
    chance = {of: times / len(kind) for of, times in share.items()}
    fixed = {
        (one, other)
        for (one, other), times in pairs.items()
        if one != other
        and times >= CHAINS.fixed * follows[one]
        and times * np.log(chance[other]) < np.log(CHAINS.by_chance)
    }
    firsts = Counter(kind[order[np.concatenate([[True], ~same])]].tolist()) if len(order) else {}
    gap = {
        pair: float(
            np.median(
                (begin[after] - end[before])[(kind[before] == pair[0]) & (kind[after] == pair[1])]
            )
        )
        for pair in fixed
    }
    for one, other in [*fixed]:
        # Two in turn: a use begins with what connections begin with, else after the longer pause.
        if (other, one) in fixed:
            rank = (-firsts.get(one, 0), gap[one, other]), (-firsts.get(other, 0), gap[other, one])
            fixed.discard((one, other) if rank[0] > rank[1] else (other, one))
    use = np.arange(len(kind))
    for one, other in zip(before.tolist(), after.tolist(), strict=True):
        if opens[one] or (int(kind[one]), int(kind[other])) in fixed:
            use[other] = use[one]
    return use


def _find_waits(calls: I64, endpoint: I64) -> None:
    """Say how each call came by its connection, and of which pool that is.

    Connections that are asked the same kinds are a pool; who wants one while all are taken waits,
    and asks some rounds after one was given back, as many as it takes most often.  So whoever asks
    over a connection after as many rounds has waited for it (1), or came before who waited (0);
    who asks later found it free (2).
    """
    of_end = _find_pools(endpoint, calls[:, 5])
    pools = np.unique([*of_end.values()])
    calls[:, 7] = np.searchsorted(pools, [of_end[of] for of in endpoint.tolist()])
    size = np.bincount(np.searchsorted(pools, [*of_end.values()]))
    before = _find_before(calls, endpoint)
    rounds = np.where(before >= 0, calls[:, 3] - calls[before, 4], _ROUNDS)
    waited = _find_waiting(calls, endpoint, size) & (rounds < _ROUNDS)
    calls[:, 2] = _AT_ONCE
    for pool in range(len(size)):
        mine = calls[:, 7] == pool
        if (waited & mine).sum() >= CHAINS.few:
            usual = int(np.bincount(rounds[waited & mine]).argmax())
            calls[mine, 2] = np.clip(rounds[mine] - usual + 1, 0, _AT_ONCE)


def _find_before(calls: I64, endpoint: I64) -> I64:
    """Return the call before each over its connection, -1 for none."""
    order = np.lexsort((calls[:, 0], endpoint))
    before = np.full(len(calls), -1)
    same = endpoint[order[1:]] == endpoint[order[:-1]]
    before[order[1:][same]] = order[:-1][same]
    return before


def _find_waiting(calls: I64, endpoint: I64, size: I64) -> Bool:
    """Return which calls are made over a connection that was given back when none was free."""
    found = np.zeros(len(calls), np.bool_)
    taken: dict[int, int] = {}
    busy = np.zeros(len(size), np.int64)
    scarce: dict[int, bool] = {}
    events = sorted(
        (int(time), -step, number)
        for step, column in enumerate(calls[:, :2].T)
        for number, time in enumerate(column.tolist())
    )
    for _, ends, number in events:
        of, pool = int(endpoint[number]), int(calls[number, 7])
        if not ends:
            found[number] = scarce.get(of, False)
            busy[pool] += of not in taken
            taken[of] = number
        elif taken.get(of) == number:
            scarce[of] = bool(busy[pool] == size[pool])
            busy[pool] -= 1
            del taken[of]
    return found


def _find_pools(endpoint: I64, kind: I64) -> dict[int, int]:
    """Return of each endpoint one that stands for all that are asked a kind which it is asked."""
    pairs = sorted({*zip(endpoint.tolist(), kind.tolist(), strict=True)})
    pool: dict[int, int] = {of: of for of, _ in pairs}
    changed = True
    while changed:
        least: dict[int, int] = {}
        for of, asked in pairs:
            least[asked] = min(least.get(asked, of), pool[of])
        changed = False
        for of, asked in pairs:
            if least[asked] < pool[of]:
                pool[of], changed = least[asked], True
    return pool


class _Drawn:
    """One run: chains of a loop and what was learned of it."""

    def __init__(self, loop: Loop, seed: int) -> None:
        first, candidates = loop.candidates
        self.owner = np.full(len(loop.calls), -1, np.int32)
        steps = np.concatenate([loop.calls[:, 0], loop.requests[:, 1]])
        self.chains = Chains(
            np.ascontiguousarray(loop.calls),
            np.ascontiguousarray(loop.requests),
            np.argsort(steps, kind="stable").astype(np.int64),
            first,
            candidates,
            self.owner,
            loop.kinds,
            loop.roots,
            CHAINS.alone,
            seed,
        )
        self._sorts = (_AT_ONCE + 1) * (loop.kinds + loop.roots), loop.kinds + 1
        self.tally = np.zeros(len(candidates), np.int32)

    def set_costs(self, lags: F64, overtaken: F64 | None = None, turns: F64 | None = None) -> None:
        """Set what was counted, or at first guessed."""
        total = lags.sum(axis=2, keepdims=True)
        share = (lags + CHAINS.rounds_unknown * _FLAT) / (total + CHAINS.rounds_unknown)
        strange = CHAINS.strange_rounds
        logs = np.log((1 - strange) * share + strange / _ROUNDS)
        costs = np.full((self._sorts[0] + _AT_ONCE) * self._sorts[1], CHAINS.overtakes_at_first)
        of_pairs = np.array(CHAINS.in_turn_at_first)
        if overtaken is not None and turns is not None:
            few = overtaken[:, 0] < CHAINS.few
            costs = np.clip(-np.log((overtaken[:, 1] + 0.5) / (overtaken[:, 0] + 1)), 0, 4)
            costs[few] = 1.0
            every, other = turns.reshape(4, 2).T
            of_pairs = np.clip(np.log((every - other + 1) / (other + 1)), 0, 4)
        # Where nobody waits for a connection: so long it takes until somebody waits for one, too.
        usual = lags.reshape(_AT_ONCE + 1, -1, self._sorts[1], _ROUNDS)[_AT_ONCE].argmax(axis=2)
        # Rounded, so that draws are alike whichever library calculated.
        rounded = (np.round(values, 6) for values in (costs, of_pairs))
        self.costs = np.round(logs, 6), usual.astype(np.int32), *rounded
        self.chains.set_costs(*self.costs)

    def begin(self, owner: I64) -> None:
        """Begin with an answer."""
        self.set_costs(np.zeros((*self._sorts, _ROUNDS)))
        self.owner[:] = owner
        self.chains.place()
        self.learn()

    def guess(self, loop: Loop, lags: F64, asks: F64) -> None:
        """Begin with a guess of what follows what after how many rounds, and who asks what."""
        share, whose = lags.sum(axis=2), asks / np.maximum(asks.sum(axis=0), 1e-9)
        firsts = {int(last): int(one) for one, last in np.unique(loop.calls[:, 5:7], axis=0)}
        for before, after in zip(*(c.tolist() for c in np.nonzero(share > 0)), strict=True):
            received, ends = before >= loop.kinds, after == loop.kinds
            for root in [before - loop.kinds] if received else range(loop.roots):
                times = share[before, after] * CHAINS.guessed
                times *= 1 if received else whose[root, before]
                times *= 1 if ends else whose[root, after]
                symbols = [] if received else [firsts[before]]
                self.chains.guess(root, symbols, 2 * loop.kinds if ends else after, float(times))
        self.set_costs(np.tile(lags, (_AT_ONCE + 1, 1, 1)) * CHAINS.guessed)
        self.chains.place()

    def learn(self, leaves: float = 1.0) -> None:
        """Learn from the chains as they are: what is asked, and when."""
        lags = np.zeros((*self._sorts, _ROUNDS))
        overtaken = np.zeros(((self._sorts[0] + _AT_ONCE) * self._sorts[1], 2))
        turns = np.zeros(8)
        self.chains.count_rounds(lags, overtaken, turns)
        self.set_costs(lags, overtaken, turns)
        self.chains.learn(leaves)
        self.chains.place()

    def cool(self, heat: float) -> None:
        """Exchange calls at less and less heat; what is usual is learned anew in the last of it."""
        sweep = CHAINS.proposals * CHAINS.sweeps
        while heat > 1:
            self.chains.sweep(heat, sweep)
            if heat < CHAINS.learns_below:
                self.learn()
            heat *= CHAINS.cools
        for _ in range(CHAINS.last):
            self.chains.sweep(1.0, sweep)
            self.learn()

    def reheat(self, least: float) -> None:
        """Cool again from what was learned, as long as that makes it so much more probable."""
        best, stays = self.chains.score(), 0
        for _ in range(CHAINS.reheats):
            self.cool(CHAINS.warm)
            score = self.chains.score()
            stays = 0 if score > best + least else stays + 1
            best = max(best, score)
            if stays > 1:
                break


def guess_asks(loop: Loop) -> F64:
    """Return how often a request of each kind asks what, at a guess.

    Whoever is under way may have asked: the weights of a mixture, by expectation maximization.

    Returns
    -------
    float64 [roots, kinds]
    """
    first, candidates = loop.candidates
    call = np.repeat(np.arange(len(loop.calls)), np.diff(first))
    root, kind = loop.requests[candidates, 4], loop.calls[call, 5]
    many = np.bincount(loop.requests[:, 4], minlength=loop.roots)
    lasting = loop.requests[:, 3] - loop.requests[:, 2] + 1
    under_way = np.maximum(np.bincount(loop.requests[:, 4], lasting, loop.roots), 1)
    asked: F64 = np.ones((loop.roots, loop.kinds))
    for _ in range(CHAINS.guesses if loop.roots > 1 else 1):
        weight = (asked / under_way[:, np.newaxis])[root, kind]
        weight /= np.bincount(call, weight, len(loop.calls))[call]
        sums = np.bincount(root * loop.kinds + kind, weight, asked.size)
        asked = sums.reshape(asked.shape).astype(np.float64)
    return np.asarray(np.round(asked / np.maximum(many, 1)[:, np.newaxis], 3))


def guess_rounds(loop: Loop, many: int = 10) -> F64:
    """Return how often which sort of step follows which, and after how many rounds, at a guess.

    Counts of a round are a sum over what came in the rounds before: non-negative least squares, by
    the multiplicative updates of Lee and Seung (2001), tells the terms without knowing who is who.

    Returns
    -------
    float64 [kinds + roots, kinds + 1, rounds]
        Shares of what follows one that ended, or was received; a call, or the answer (last).
    """
    kinds, begun = loop.kinds, loop.requests[:, 4]
    length = int(max(loop.calls[:, 4].max(), loop.requests[:, 3].max())) + 1
    came, went = np.zeros((kinds + loop.roots, length)), np.zeros((kinds + 1, length))
    np.add.at(came, (loop.calls[:, 6], loop.calls[:, 4]), 1)
    np.add.at(came, (kinds + begun, loop.requests[:, 2]), 1)
    np.add.at(went, (loop.calls[:, 5], loop.calls[:, 3]), 1)
    np.add.at(went, (np.full(len(loop.requests), kinds), loop.requests[:, 3]), 1)
    some = np.flatnonzero(came.sum(axis=1) >= CHAINS.few)
    to = np.flatnonzero(went.sum(axis=1) >= CHAINS.few)
    found = np.zeros((len(came), len(went), _ROUNDS))
    if not len(some) or not len(to):
        return found
    shifted = np.stack(
        [np.pad(came[one], (lag, 0))[:length] for one in some for lag in range(many)]
    )
    gram, aim = shifted @ shifted.T, went[to] @ shifted.T
    # Each of what comes is followed by one step.
    tie = float(CHAINS.one_follows) * length
    each = np.repeat(np.eye(len(some)), many, axis=0)
    weight = np.full((len(to), len(some) * many), 1.0 / (len(to) * many))
    for _ in range(CHAINS.guesses):
        followed = (weight.sum(axis=0) @ each) @ each.T
        weight *= (aim + tie) / (weight @ gram + tie * followed + 1e-12)
    found[np.ix_(some, to)] = np.pad(
        weight.reshape(len(to), len(some), many).transpose(1, 0, 2),
        ((0, 0), (0, 0), (0, _ROUNDS - many)),
    )
    return np.asarray(np.round(found, 3))  # alike whichever library multiplied


class States(NamedTuple):
    """What states of chains say together.

    Attributes
    ----------
    owner : int64 [calls]
        Whose each call is in most of them; -1 where nobody can be.
    share : float64 [calls]
        In which share.
    apart : float
        The share of calls on which runs differ.
    """

    owner: I64
    share: F64
    apart: float

    def judge(self) -> F64:
        """Return how probable each owner is; 0 where that cannot be said.

        Runs that end apart are each surer than it is right: mostly all are wrong, and alike where
        they agree.  Fitted on loops whose truth is known (`evaluation/servers/calibrated.py`).
        """
        of = self.weigh() @ np.array(CHAINS.odds)
        told = (self.owner >= 0) & (self.apart <= CHAINS.apart)
        return np.where(told, np.round(1 / (1 + np.exp(-of)), 6), 0.0)

    def weigh(self) -> F64:
        """Return what the odds of each owner are added up from."""
        share = np.clip(self.share, *CHAINS.surest)
        odds, each = np.log(share / (1 - share)), np.ones(len(self.share))
        above = np.maximum(odds - CHAINS.high, 0)
        return np.stack([odds, -self.apart * each, -self.apart * odds, -above, each], axis=1)


def draw_owners(loop: Loop, others: I64) -> tuple[I64, F64]:
    """Return whose each call is, and how probable that is; -1 and 0 where nobody can be."""
    states = draw_states(loop, others)
    return states.owner, np.where(loop.sure >= 0, 1.0, states.judge())


def draw_states(loop: Loop, others: I64) -> States:
    """Draw states of a loop.

    Parameters
    ----------
    loop : Loop
    others : int64 [calls]
        Whose it is by another way (-1: unknown): a run begins there, if that is as probable.
    """
    first, candidates = loop.candidates
    learned, begin = loop, others
    if len(loop.calls) > CHAINS.learned_from:
        learned, begin = loop.select(0, CHAINS.learned_from, others)
    runs = [_Drawn(learned, seed) for seed in range(CHAINS.runs)]
    guess = guess_rounds(learned), guess_asks(learned)

    def settle(seed: int) -> None:
        if seed:
            runs[seed].guess(learned, *guess)
        else:
            runs[seed].begin(begin)
        runs[seed].cool(CHAINS.hot if seed else 1.0)

    def draw(run: _Drawn) -> None:
        for _ in range(CHAINS.drawn):
            run.chains.sweep(1.0, CHAINS.proposals, run.tally)

    # Each has its own chains, and draws without Python.
    side_by_side(*(partial(settle, seed) for seed in range(len(runs))))
    if _find_disputed(runs) > CHAINS.disputed:
        least = CHAINS.gain * len(learned.calls)
        side_by_side(*(partial(run.reheat, least) for run in runs[1:]))
    scores = np.array([run.chains.score() for run in runs])
    if learned is not loop:
        runs = [_carry_over(run, loop, seed) for seed, run in enumerate(runs)]
    side_by_side(*(partial(draw, run) for run in runs))
    shares = np.array([run.tally for run in runs]) / CHAINS.drawn
    whole, apart = _find_apart(shares, scores, learned)
    owner, share = np.full(len(loop.calls), -1, np.int64), np.zeros(len(loop.calls))
    for number, (low, high) in enumerate(zip(first[:-1].tolist(), first[1:].tolist(), strict=True)):
        if low < high:
            best = low + int(np.argmax(whole[low:high]))
            owner[number], share[number] = candidates[best], whole[best]
    owner[share <= 0] = -1
    return States(owner, share, apart)


def _find_disputed(runs: Sequence[_Drawn]) -> float:
    """Return of which share of calls two runs say that they are others'."""
    pairs = combinations(runs, 2)
    return max(float((one.owner != other.owner).mean()) for one, other in pairs)


def _find_apart(shares: F64, scores: F64, loop: Loop) -> tuple[F64, float]:
    """Return what runs together say, and how far apart they ended up.

    Where they do, each of them is surer than it is right.
    """
    weight = np.exp((scores - scores.max()) / (CHAINS.alike * len(loop.calls)))
    weight = np.round(weight / weight.sum(), 6)
    whole = weight @ shares
    apart = float(weight @ np.abs(shares - whole).sum(axis=1)) / max(2 * float(whole.sum()), 1.0)
    return whole, apart


def _carry_over(learned: _Drawn, loop: Loop, seed: int) -> _Drawn:
    """Return chains of a whole loop, by what was learned of a part of it."""
    run = _Drawn(loop, seed)
    run.costs = learned.costs
    run.chains.set_costs(*run.costs)
    run.chains.learn_from(learned.chains)
    run.chains.place()
    for heat in CHAINS.carried:
        run.chains.sweep(heat, CHAINS.proposals)
    return run
