/* Arming a CQ (lib/queue/completion_queue.h): the program arms, fences, polls once more and waits; the daemon pushes,
 * fences, reads the arm word and sends an event. Both sides' plain stores go through one-place store buffers.
 * Checked: the program never waits for an event that does not come.
 */
#define ENTRIES 3

byte pushed, pushed_buffered; /* entries whose phase is visible; in the store buffer */
bool push_on_the_way;
byte arm, arm_buffered;       /* serial number of the last arming */
bool arm_on_the_way;
chan event = [4] of { bit };

#ifdef NO_PROGRAM_FENCE
#define PROGRAM_FENCE skip
#else
#define PROGRAM_FENCE !arm_on_the_way
#endif
#ifdef NO_DAEMON_FENCE
#define DAEMON_FENCE skip
#else
#define DAEMON_FENCE !push_on_the_way
#endif

proctype Drain() {
end:
  do
  :: atomic { push_on_the_way -> pushed = pushed_buffered; push_on_the_way = false }
  :: atomic { arm_on_the_way -> arm = arm_buffered; arm_on_the_way = false }
  od
}

proctype Daemon() {
  byte i = 0, last_arm = 0, seen;
  do
  :: i < ENTRIES ->
     i++;
     atomic { !push_on_the_way -> pushed_buffered = i; push_on_the_way = true };
     if
     :: i < ENTRIES -> skip   /* several pushes in one duty cycle */
     :: true ->
        DAEMON_FENCE;
        seen = arm;
        if
        :: seen != last_arm -> last_arm = seen; event!1
        :: else
        fi
     fi
  :: else -> break
  od
}

proctype Program() {
  byte polled = 0, serial = 0;
  do
  :: polled == ENTRIES -> break
  :: polled < ENTRIES ->
     if
     :: polled < pushed -> polled = pushed
     :: else ->
        serial++;
        atomic { !arm_on_the_way -> arm_buffered = serial; arm_on_the_way = true };
        PROGRAM_FENCE;
        if
        :: polled < pushed -> polled = pushed
        :: else -> event?1    /* an end state here is a lost event */
        fi
     fi
  od
}

init {
  atomic { run Drain(); run Daemon(); run Program() }
}
