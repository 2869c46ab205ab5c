# When a turn of an endpoint begins and ends: a message in, and the message out that follows.
#
# The rules are those of docs/requests.md; tests/oracle/turns.py is the plain twin.  The analysis of
# a recording includes them, and the recorder that follows requests as they come.

cdef enum:
    # Where an endpoint is in its turn
    IDLE = 0
    ARRIVED = 1
    RECEIVED = 2
    ANSWERED = 3
    # How a turn's begin is known
    BY_ARRIVAL = 0
    BY_WAKE = 1
    BY_READ = 2
    SEGMENT = 1400        # bytes of a receive that may be a part of a larger message
    PAUSE = 5000000       # ns that nothing is sent within an answer
    APART = 200000        # ns: a header and its body come sooner after each other
    # What a step comes to, bits
    TURN_OVER = 1         # `done` is a turn
    TURN_LONGER = 2       # `done`, which was a turn already, ends later
    TURN_CUT = 4          # one is over that may have begun before the recording

ctypedef struct Turn:
    int64_t begin
    int64_t received
    int64_t answered
    int64_t end
    int64_t bytes_in
    int64_t bytes_out
    int32_t endpoint
    int32_t number
    int32_t reader
    int32_t tid
    int32_t intrusions
    int32_t how
    int32_t pauses        # within its answer

ctypedef struct Split:
    # Another thread receives while a send may go on: if it does, this is the next turn.
    int32_t by            # whose send that is, 0: there is none
    int32_t reader
    int64_t end           # of the turn before: when its answer arrived
    int64_t begin
    int64_t received
    int64_t bytes_in

ctypedef struct State:
    Turn turn
    Turn done             # the last one that is over
    int64_t moved         # its last receive or send
    int64_t arrived       # its last arrival
    int64_t fresh         # the last arrival since its last receive, -1 none
    int64_t later         # an arrival that is the next turn's already, -1 none
    int64_t going         # when what a send goes on with arrived
    int64_t last_bytes    # of its last receive
    Py_ssize_t row        # of `done`, where the rows are kept
    int32_t arrived_by
    int32_t going_by      # whose send may go on though its answer has arrived, 0 nobody's
    Split split           # in what may be two turns
    int32_t extra         # since its last receive: data that came apart, of an unanswered turn
    int32_t incomplete
    int32_t unsolicited
    int8_t phase
    int8_t seen           # anything before its first receive
    int8_t cut            # the turn may have begun before the recording
    int8_t is_done


cdef inline void begin_state(State* s) noexcept nogil:
    """Begin with an endpoint of which nothing is known; all else of it is 0."""
    s.fresh = s.later = s.moved = s.arrived = -1


cdef inline int end_turn(State* s) noexcept nogil:
    s.turn.number += 1
    if s.cut:
        s.incomplete += 1
        s.cut = s.is_done = 0
        return TURN_CUT
    s.done, s.is_done = s.turn, 1
    return TURN_OVER


cdef inline int arrive(State* s, const State* peer, int64_t t, int32_t tid) noexcept nogil:
    cdef bint apart = s.arrived >= 0 and t - s.arrived >= APART
    cdef int found = 0
    s.arrived, s.arrived_by, s.seen = t, tid, 1
    if (s.phase >= RECEIVED and s.going_by == 0 and peer != NULL
            and peer.arrived > s.moved and peer.arrived_by > 0):
        # Whoever asks again has had the answer: its send may go on still.
        s.going_by, s.going, s.later = peer.arrived_by, peer.arrived, t
    if s.phase == ANSWERED:
        found = end_turn(s)
        s.phase = IDLE
    if s.phase == IDLE:
        s.phase, s.turn.begin = ARRIVED, t
        s.extra = 0
    elif apart and s.going_by == 0:
        s.extra += 1
    s.fresh = t
    return found


cdef inline int receive(State* s, int64_t woken, int64_t t, int32_t tid,
                        int64_t count) noexcept nogil:
    """``woken`` is when the thread woke since anything moved here or by it, -1 for never."""
    cdef int found = 0
    if s.phase == ANSWERED:
        found = end_turn(s)
        s.phase = IDLE
        s.extra = 0
        if s.later >= 0:
            s.phase, s.turn.begin = ARRIVED, s.later
    if s.phase == RECEIVED:
        if s.split.by > 0:
            s.split.bytes_in += count
        elif s.going_by > 0 and s.going_by != tid:
            s.split.by, s.split.reader, s.split.end = s.going_by, tid, s.going
            s.split.begin, s.split.received, s.split.bytes_in = s.later, t, count
        s.turn.bytes_in += count
        if s.last_bytes < SEGMENT:
            s.turn.intrusions += s.extra
    else:
        s.turn.how = BY_ARRIVAL
        if s.phase == IDLE:
            s.cut = s.cut or not s.seen
            s.turn.how, s.turn.begin = BY_READ, t
            if woken > s.moved:
                s.turn.how, s.turn.begin = BY_WAKE, woken
        s.turn.received, s.turn.reader = t, tid
        s.turn.bytes_in, s.turn.bytes_out = count, 0
        s.turn.intrusions = s.extra if count < SEGMENT else 0
        s.turn.pauses = 0
        s.phase = RECEIVED
    s.moved, s.last_bytes, s.seen = t, count, 1
    s.fresh, s.later, s.going_by, s.extra = -1, -1, 0, 0
    return found


cdef inline int send(State* s, int64_t t, int32_t tid, int64_t count) noexcept nogil:
    cdef int8_t going = s.going_by > 0 and s.going_by == tid
    cdef int found = 0
    if s.phase == RECEIVED and s.split.by > 0 and s.split.by == tid:
        s.turn.bytes_in -= s.split.bytes_in
        s.turn.answered, s.turn.end, s.turn.tid = s.split.end, s.split.end, tid
        s.turn.bytes_out, s.split.by = count, 0
        found = end_turn(s)
        s.turn.begin, s.turn.how, s.turn.received = s.split.begin, BY_ARRIVAL, s.split.received
        s.turn.reader, s.turn.bytes_in, s.turn.bytes_out = s.split.reader, s.split.bytes_in, 0
        s.turn.intrusions = s.turn.pauses = 0
        s.moved, s.extra = t, 0
        return found
    s.split.by = 0
    if s.phase == RECEIVED and going:
        s.turn.answered, s.turn.end, s.turn.tid, s.turn.bytes_out = s.going, s.going, tid, count
        found = end_turn(s)
        s.phase, s.turn.begin = ARRIVED, s.later
    elif s.phase == ARRIVED and going:
        if s.is_done:
            s.done.end, s.done.tid = s.going, tid
            s.done.bytes_out += count
            found = TURN_LONGER
    elif s.phase >= RECEIVED:
        if s.phase == RECEIVED:
            s.turn.answered, s.turn.bytes_out = t, 0
            if s.last_bytes < SEGMENT:
                s.turn.intrusions += s.extra
            s.phase, s.later = ANSWERED, t if s.fresh == t else -1
        elif t - s.moved >= PAUSE:
            s.turn.pauses += 1
        s.turn.end, s.turn.tid = t, tid
        s.turn.bytes_out += count
    else:
        # What was sent first may answer what was asked before the recording.
        if s.seen:
            s.unsolicited += 1
        else:
            s.incomplete += 1
        s.phase = IDLE
    s.moved, s.seen, s.going_by, s.extra = t, 1, 0, 0
    return found


cdef inline int end_endpoint(State* s) noexcept nogil:
    cdef int found = 0
    if s.phase == ANSWERED:
        found = end_turn(s)
    elif s.phase == RECEIVED:
        s.incomplete += 1
    s.phase, s.cut, s.going_by, s.split.by = IDLE, 0, 0, 0
    return found
