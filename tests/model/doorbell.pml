/* The doorbell and its sleeping worker (lib/queue/doorbell.h), over a memory whose stores may be delayed.
 *
 * Every plain store goes through a one-place store buffer of its thread, which drains at any time; a fence and an atomic
 * read-modify-write wait until it is empty. That is the memory order of x86, the weakest that the code's seq_cst operations permit.
 * Two clients ring QPs of one leaf word; the worker serves, and sleeps when it finds nothing.
 * Checked: no client waits for ever (no invalid end state), and each ring is served.
 */
#define RINGS 2
#define CLIENTS 2

byte producer[CLIENTS];       /* published indices: plain stores before the bell, so in program order with the RMW */
bool leaf[CLIENTS];           /* one bit a QP */
bool summary;
byte sleeping;                /* in memory: 0, or the number of the sleep */
bool buffered;                /* the worker's store to `sleeping`, in its store buffer */
byte buffer_value;
byte woken;                   /* shared by the clients: the last sleep that one of them ended (Session::wake) */
chan wake = [4] of { bit };   /* the eventfd: a full one wakes, too */
byte served[CLIENTS];
byte done;

proctype Drain() {            /* the worker's store buffer */
end:
  do
  :: atomic { buffered -> sleeping = buffer_value; buffered = false }
  od
}

#ifdef NO_FENCE
#define FENCE skip
#else
#define FENCE !buffered
#endif

proctype Client(byte qp) {
  byte i = 0;
  byte seen, before;
  do
  :: i < RINGS ->
     i++;
     producer[qp] = i;        /* release: visible before the bit */
     atomic { leaf[qp] = true };
     atomic { summary = true };
     seen = sleeping;
     if
     :: seen != 0 ->
        atomic { before = woken; woken = seen };
        if
        :: before != seen -> if :: nfull(wake) -> wake!1 :: full(wake) fi
        :: else
        fi
     :: else
     fi
  :: else -> break
  od;
  done++
}

proctype Worker() {
  byte q, sleeps = 0;
  bool found;
serve:
  found = false;
  if
  :: atomic { summary -> summary = false };
     q = 0;
     do
     :: q < CLIENTS ->
        if
        :: atomic { leaf[q] -> leaf[q] = false }; served[q] = producer[q]; found = true
        :: else
        fi;
        q++
     :: else -> break
     od
  :: else
  fi;
  if
  :: found -> goto serve
  :: else
  fi;
  /* No work: set `sleeping`, fence, check once more. */
  sleeps++;
  atomic { !buffered -> buffered = true; buffer_value = sleeps };
  FENCE;
  if
  :: summary -> skip
  :: else ->
end_asleep:
     wake?1
  fi;
  atomic { !buffered -> buffered = true; buffer_value = 0 };
  goto serve
}

init {
  atomic { run Drain(); run Worker(); run Client(0); run Client(1) }
  /* When all clients are done and no step is possible, all rings were served. */
  (done == CLIENTS);
  (timeout);
  assert(served[0] == RINGS && served[1] == RINGS)
}
