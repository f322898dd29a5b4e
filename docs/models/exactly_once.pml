/*
 * Exactly once with exclusive delivery by commit markers, for one partition.
 *
 * README.md in this folder tells what the model covers. `make model-spin` checks it.
 *
 * The model has these settings, for example `spin -a -DFAST=1 -DDEAD=1 exactly_once.pml`:
 *
 *	FAST      1: fast batches, 0: atomic batches
 *	DEAD      1: a worker can send an input to the dead-letter stream instead of storing a result
 *	INPUTS    the number of inputs
 *	WORKERS   the number of workers. The pin goes from worker 1 to worker 2 and so on, at any time
 *	TIMEOUTS  how many times workers give up waiting for an answer
 *	CRASH     1: every worker but the last can crash
 *	STALE     how many times a worker that has lost the pin takes over again because it has not noticed the loss
 *
 * Each MUTATE_... setting breaks one rule of the protocol. The check must find an error then.
 */

#ifndef FAST
#define FAST 1
#endif
#ifndef DEAD
#define DEAD 0
#endif
#ifndef INPUTS
#define INPUTS 3
#endif
#ifndef WORKERS
#define WORKERS 3
#endif
#ifndef TIMEOUTS
#define TIMEOUTS 2
#endif
#ifndef STALE
#define STALE 1
#endif

#ifndef CRASH
#define CRASH 1
#endif

#define RESULTS 0 /* the chain of markers in the result stream */
#define LETTERS 1 /* the chain of markers in the dead-letter stream */

#define BIT(i) (1 << (i))

/* The last marker of a chain. Its sequence counts only markers: no step compares it with the sequence of another message. */
typedef Marker {
	byte seq;     /* 0: the chain has no marker */
	byte owner;
	byte number;
	byte covered; /* the position: every input up to this one is settled */
	byte since;   /* the sequence of the first marker that has this position */
	byte list     /* in the dead-letter stream: the inputs that have a dead letter, as bits */
}

/* A fence, or a batch of messages and the marker that ends it. */
typedef Request {
	byte state;
	bool batch;   /* false: it is a fence */
	bool late;    /* the worker doesn't wait for the answer any more */
	byte chain;
	byte cond;    /* the condition: the sequence of the last marker */
	byte number;
	byte next;    /* in the result stream: the input whose result the server stores next */
	byte covered; /* the marker's position, and the last input of the batch */
	byte since;
	byte list;    /* the marker's list */
	byte dead;    /* in the result stream: inputs without a result. In the dead-letter stream: the dead letters of the batch */
	byte answer;  /* the sequence of the stored marker */
	bool open     /* a fast batch of which the server has stored the first message. Its id is its condition */
}

/* States of a request. */
#define NONE 0
#define SENT 1
#define STORED 2
#define REFUSED 3

/* A worker has a slot for each request that it can have in flight. */
#define SLOTS 3
#if TIMEOUTS > 2
#undef SLOTS
#define SLOTS 4
#endif
typedef Connection { Request request[SLOTS] }

/* What the server stores. */
Marker marker[2];
byte results;            /* the inputs that have a result, as bits */
byte behind[INPUTS + 1]; /* the sequence of the last marker when the result was stored */
byte letters;            /* the inputs that have a dead letter, as bits */

Connection connection[WORKERS + 1];
byte pin;                /* the worker that the server has given the pin to last */
byte acknowledged;       /* the highest input that any worker has acknowledged: the floor is at most this */
byte timeouts = TIMEOUTS;
byte stale = STALE;

#define REQUEST(s) connection[w].request[s]

/* Every input up to i has a result or a dead letter. */
#define SETTLED(i) (((results | letters) & (BIT((i) + 1) - 2)) == (BIT((i) + 1) - 2))

/* ---- The server ---- */

inline store_result(i) {
	assert((results & BIT(i)) == 0); /* an input has at most one result */
	assert((letters & BIT(i)) == 0); /* an input has either a result or a dead letter */
	assert((results >> (i)) == 0);   /* the results are in the order of the inputs */
	assert(SETTLED((i) - 1));        /* no earlier input is missing */
	results = results | BIT(i);
	behind[i] = marker[RESULTS].seq
}

inline store_letters(set) {
	assert((letters & (set)) == 0);  /* an input has at most one dead letter */
	assert((results & (set)) == 0);  /* an input has either a result or a dead letter */
	letters = letters | (set)
}

#define clear(s) clear_request(REQUEST(s))
#define clear_request(r) \
	r.state = NONE; r.batch = false; r.late = false; r.chain = 0; r.cond = 0; r.number = 0; r.next = 0; \
	r.covered = 0; r.since = 0; r.list = 0; r.dead = 0; r.answer = 0; r.open = false

#ifdef MUTATE_SAME_OWNER
#define OWNER 1
#else
#define OWNER w
#endif

inline store_marker(s) {
	c = REQUEST(s).chain;
	assert(c == LETTERS || SETTLED(REQUEST(s).covered));                   /* what a marker covers is settled */
	assert(c == LETTERS || REQUEST(s).covered >= marker[RESULTS].covered); /* the position never goes back */
	marker[c].seq++;
	marker[c].owner = OWNER;
	marker[c].number = REQUEST(s).number;
	marker[c].covered = REQUEST(s).covered;
	marker[c].since = ((REQUEST(s).batch && c == RESULTS) -> marker[c].seq : REQUEST(s).since);
	marker[c].list = REQUEST(s).list;
	REQUEST(s).answer = marker[c].seq;
	REQUEST(s).state = STORED;
#ifndef MUTATE_UNCONDITIONAL_FENCE
	refuse_others();
#endif
	c = 0
}

#define OTHER connection[x].request[y]

/* The server refuses a request, or the rest of a batch. */
#define refuse(r) if :: r.late -> clear_request(r) :: else -> r.state = REFUSED; r.open = false fi

/* When a marker is stored, no other batch is open. A mutation breaks this before it does any damage, so the model looks only for the damage. */
#if defined(MUTATE_FENCE_BESIDE) || defined(MUTATE_ID_ON_FIRST) || defined(MUTATE_UNCONDITIONAL_FENCE) || defined(MUTATE_NO_FENCE)
#define NONE_OPEN skip
#else
#define NONE_OPEN assert(false)
#endif

/* Refuses every other request of the chain now, to save states: their conditions never hold again. */
inline refuse_others() {
	x = 1;
	do
	:: x <= WORKERS ->
		y = 0;
		do
		:: y < SLOTS ->
			if
			:: OTHER.state == SENT && OTHER.chain == c && !OTHER.open -> refuse(OTHER)
			:: OTHER.open && c == RESULTS -> NONE_OPEN
			:: else
			fi;
			y++
		:: else -> break
		od;
		x++
	:: else -> break
	od;
	x = 0;
	y = 0
}

/* Only the first message of a batch and its marker have the condition. */
#define HOLDS(s) (marker[REQUEST(s).chain].seq == REQUEST(s).cond)
#define UNCONDITIONAL(s) (REQUEST(s).open && REQUEST(s).next <= REQUEST(s).covered)

/*
 * A fence has the id of the batch that may be open behind the last marker. If there is one, the server ends it instead of storing the
 * fence. The worker sends the fence again.
 */
inline end_open(s) {
	x = 1;
	do
	:: x <= WORKERS ->
		y = 0;
		do
		:: y < SLOTS ->
			if
			:: OTHER.open && OTHER.cond == REQUEST(s).cond -> refuse(OTHER); ended = true
			:: else
			fi;
			y++
		:: else -> break
		od;
		x++
	:: else -> break
	od;
	x = 0;
	y = 0
}

#if FAST && !defined(MUTATE_FENCE_BESIDE)
#define ENDS(s) (!REQUEST(s).batch && REQUEST(s).chain == RESULTS)
#else
#define ENDS(s) false
#endif

/* Stores the next result of a batch. */
inline store_next(s) {
#ifdef MUTATE_ID_ON_FIRST
	/* The server knows the id of the first message. It skips the message, doesn't look at the condition, and begins the batch. */
	if
	:: !REQUEST(s).open && (results & BIT(REQUEST(s).next))
	:: else -> store_result(REQUEST(s).next)
	fi;
#else
	store_result(REQUEST(s).next);
#endif
	REQUEST(s).next++;
#if FAST
	REQUEST(s).open = true
#endif
}

/* Stores the marker of a batch. */
inline end_batch(s) {
	REQUEST(s).open = false;
	if
	:: HOLDS(s) -> store_marker(s)
	:: else -> REQUEST(s).state = REFUSED
	fi
}

#ifdef MUTATE_UNCONDITIONAL_FENCE
#define REFUSES(s) (!HOLDS(s) && REQUEST(s).batch && !UNCONDITIONAL(s))
#elif defined(MUTATE_ID_ON_FIRST)
#define REFUSES(s) (!HOLDS(s) && !UNCONDITIONAL(s) && !(REQUEST(s).batch && REQUEST(s).chain == RESULTS && !REQUEST(s).open && \
	REQUEST(s).next <= REQUEST(s).covered && (results & BIT(REQUEST(s).next))))
#else
#define REFUSES(s) (!HOLDS(s) && !UNCONDITIONAL(s))
#endif

/* The server handles a fence, an atomic batch, or one message of a fast batch. A refusal ends a fast batch. */
inline handle(s) {
	if
	:: ENDS(s) -> end_open(s)
	:: else
	fi;
	if
	:: ended -> ended = false
	:: !ended && REFUSES(s) -> REQUEST(s).state = REFUSED; REQUEST(s).open = false
	:: else ->
		if
		:: REQUEST(s).chain == LETTERS -> store_letters(REQUEST(s).dead); store_marker(s)
		:: REQUEST(s).chain == RESULTS && !REQUEST(s).batch -> store_marker(s)
		:: else ->
			do
			:: REQUEST(s).next > REQUEST(s).covered -> end_batch(s); break
			:: REQUEST(s).next <= REQUEST(s).covered && (REQUEST(s).dead & BIT(REQUEST(s).next)) -> REQUEST(s).next++
			:: REQUEST(s).next <= REQUEST(s).covered && !(REQUEST(s).dead & BIT(REQUEST(s).next)) ->
				store_next(s);
#if FAST
				break
#endif
			od
		fi
	fi;
	if
	:: REQUEST(s).late && REQUEST(s).state != SENT -> clear(s) /* the answer is lost */
	:: else
	fi
}

/* ---- The network: requests of one worker arrive in any order and at any time. A request that has timed out may get lost. ---- */

proctype Network(byte w) {
	byte c, x, y;
	bool ended;
	do
	:: d_step { REQUEST(0).state == SENT -> handle(0) }
	:: d_step { REQUEST(1).state == SENT -> handle(1) }
	:: d_step { REQUEST(2).state == SENT -> handle(2) }
	:: d_step { REQUEST(0).late -> clear(0) }
	:: d_step { REQUEST(1).late -> clear(1) }
	:: d_step { REQUEST(2).late -> clear(2) }
#if SLOTS > 3
	:: d_step { REQUEST(3).state == SENT -> handle(3) }
	:: d_step { REQUEST(3).late -> clear(3) }
#endif
#if FAST
	/* The server forgets a batch after a while without a message, and when it restarts. */
	:: d_step { REQUEST(0).open -> refuse(REQUEST(0)) }
	:: d_step { REQUEST(1).open -> refuse(REQUEST(1)) }
	:: d_step { REQUEST(2).open -> refuse(REQUEST(2)) }
#if SLOTS > 3
	:: d_step { REQUEST(3).open -> refuse(REQUEST(3)) }
#endif
#endif
#ifdef MUTATE_GAPS
	/* A message of the batch gets lost, and the server goes on with the next one. */
	:: d_step { REQUEST(0).state == SENT && REQUEST(0).batch && REQUEST(0).next < REQUEST(0).covered -> REQUEST(0).next++ }
#endif
	od
}

/*
 * ---- The worker ----
 *
 * Every step takes the answer to a request, decides, and sends the next request. Splitting a step adds no behaviour, because an
 * answer may be taken late and a request may arrive late.
 */

/* What the worker does next. All but READING wait for an answer. */
#define READING 0     /* read the last marker of the results, and fence the result stream. It has read that of the dead letters */
#define FENCING 1     /* the takeover's fence */
#define BATCH 2       /* a batch */
#define SELF_FENCE 3  /* a fence after a batch whose outcome is unknown */

/* Sends a request of kind what, which ends with the worker waiting for the answer. */
inline send(what, inChain, first, upTo, set, without) {
	step = what;
	chain = inChain;
	slot = 0;
	do
	:: REQUEST(slot).state != NONE -> slot++
	:: else -> break
	od;
	number++;
	REQUEST(slot).batch = (what == BATCH);
	REQUEST(slot).chain = inChain;
	REQUEST(slot).cond = known[inChain];
	REQUEST(slot).number = number;
	REQUEST(slot).next = first;
	REQUEST(slot).covered = upTo;
	REQUEST(slot).since = ((inChain == RESULTS && what != BATCH) -> since : 0);
	REQUEST(slot).list = set;
	REQUEST(slot).dead = without;
	REQUEST(slot).state = SENT
}

inline acknowledge(i) {
	assert(SETTLED(i)); /* an acknowledged input is settled */
	acknowledged = ((i) > acknowledged -> (i) : acknowledged)
}

inline read_letters() {
	known[LETTERS] = marker[LETTERS].seq;
	list = marker[LETTERS].list
}

#if FAST && !defined(MUTATE_NO_READ_BACK)
#define FOUND(i) ((list & BIT(i)) || ((results & BIT(i)) && behind[i] >= since))
#else
#define FOUND(i) (list & BIT(i))
#endif

/* Moves the position past the inputs that have a dead letter and, with fast batches, past those that have a result. */
inline read_back() {
	do
	:: position < INPUTS && FOUND(position + 1) -> position++
	:: else -> break
	od
}

inline forget() {
	step = 0;
	chain = 0;
	slot = 0;
	answer = 0;
	known[RESULTS] = 0;
	known[LETTERS] = 0;
	covered = 0;
	since = 0;
	position = 0;
	list = 0;
	sent = 0;
	upto = 0;
	dead = 0
}

#if defined(MUTATE_ASSUME_COMMITTED)
#define IS_OWN true
#define IS_SENT true
#elif defined(MUTATE_IGNORE_NUMBER)
#define IS_OWN (marker[chain].owner == OWNER)
#define IS_SENT true
#elif defined(MUTATE_IGNORE_OWNER)
#define IS_OWN true
#define IS_SENT (marker[chain].number == sent)
#else
#define IS_OWN (marker[chain].owner == OWNER)
#define IS_SENT (marker[chain].number == sent)
#endif

proctype Worker(byte w) {
	byte step;
	byte chain;    /* the chain of the request that the worker waits for */
	byte slot;     /* the slot of that request */
	byte number;   /* the number of the last request */
	byte sent;     /* the number of the last batch */
	byte answer;   /* the sequence of the stored marker. 0: the request was refused, or its outcome is unknown */
	byte known[2]; /* the sequence of the last marker that the worker knows, of each chain */
	byte covered;  /* the position of the last marker of the results */
	byte since;    /* the worker reads back the results that were stored after the marker with this sequence */
	byte position; /* every input up to this one is settled */
	byte list;     /* the inputs that have a dead letter */
	byte upto;     /* the last input of the batch */
	byte dead;     /* the dead letters of the batch */

	atomic {
		pin == w - 1 -> pin = w;
#if DEAD && !defined(MUTATE_READ_LETTERS_LATE)
		read_letters()
#endif
	}
waiting:
	if
	:: atomic {
		step == READING ->
		known[RESULTS] = marker[RESULTS].seq;
		covered = marker[RESULTS].covered;
		since = marker[RESULTS].since;
		/* The consumer delivers the inputs above the floor. The floor is any: acknowledgements may be late, or get lost. */
		position = covered;
		if
		:: true
		:: acknowledged > covered -> select(position : covered + 1 .. acknowledged)
		fi;
#ifdef MUTATE_READ_BACK_FROM_LAST
		since = marker[RESULTS].seq;
#endif
#ifdef MUTATE_READ_BACK_FIRST
		read_back();
#endif
#ifdef MUTATE_NO_FENCE
		goto fenced;
#endif
		send(FENCING, RESULTS, 0, covered, 0, 0);
		goto waiting
	}
	:: atomic {
		step != READING ->
		if
		:: REQUEST(slot).state == STORED -> answer = REQUEST(slot).answer; clear(slot)
		:: REQUEST(slot).state == REFUSED -> clear(slot)
		:: REQUEST(slot).state == SENT && timeouts > 0 -> timeouts--; REQUEST(slot).late = true
		:: REQUEST(slot).state != SENT && timeouts > 0 -> timeouts--; clear(slot) /* the answer is lost */
		fi;
		slot = 0;
		if
		:: answer != 0 ->
			known[chain] = answer;
			answer = 0;
			if
			:: step == FENCING && chain == RESULTS -> goto fenced
			:: step == FENCING && chain == LETTERS -> goto fenced_letters
			:: step == BATCH -> goto committed
			:: step == SELF_FENCE -> goto not_committed
			fi
		:: answer == 0 && step == FENCING -> goto ended
		:: answer == 0 && step == BATCH -> goto fence_self
		:: answer == 0 && step == SELF_FENCE ->
			/* Neither the outcome of the batch is known nor that of the fence. The last marker tells. */
			if
			:: marker[chain].seq == known[chain] -> goto fence_self /* neither has arrived yet */
			:: marker[chain].seq != known[chain] && !IS_OWN -> goto ended
			:: marker[chain].seq != known[chain] && IS_OWN ->
				known[chain] = marker[chain].seq;
				if
				:: IS_SENT -> goto committed
				:: !IS_SENT -> goto not_committed /* it is an earlier fence */
				fi
			fi
		fi;

fenced:
#if DEAD
#ifdef MUTATE_READ_LETTERS_LATE
		read_letters();
#endif
#ifdef MUTATE_NO_FENCE_IN_LETTERS
		goto fenced_letters;
#endif
		send(FENCING, LETTERS, 0, 0, list, 0);
		goto waiting;
#endif

fenced_letters:
#ifndef MUTATE_READ_BACK_FIRST
		read_back();
#endif
		acknowledge(position);

next_batch:
		/* A batch has one or two inputs. Its dead letters go first. */
		if
		:: position == INPUTS -> goto stop
		:: position < INPUTS -> upto = position + 1
		:: position + 1 < INPUTS -> upto = position + 2
		fi;
#if DEAD
		if
		:: true
		:: !(list & BIT(position + 1)) -> dead = BIT(position + 1)
		fi;
		if
		:: true
		:: upto == position + 2 && !(list & BIT(position + 2)) -> dead = dead | BIT(position + 2)
		fi;
#ifndef MUTATE_LETTERS_AFTER
		if
		:: dead != 0 -> goto send_letters
		:: else
		fi;
#endif
#endif

send_results:
		send(BATCH, RESULTS, position + 1, upto, 0, list | dead);
		sent = number;
#ifdef MUTATE_ACKNOWLEDGE_FIRST
		acknowledge(upto);
#endif
		goto waiting;

send_letters:
		send(BATCH, LETTERS, 0, 0, list | dead, dead);
		sent = number;
		goto waiting;

fence_self:
		if
		:: chain == RESULTS -> send(SELF_FENCE, RESULTS, 0, covered, 0, 0)
		:: chain == LETTERS -> send(SELF_FENCE, LETTERS, 0, 0, list, 0)
		fi;
		goto waiting;

committed:
		sent = 0;
		if
		:: chain == LETTERS -> list = list | dead; dead = 0; goto send_results
		:: chain == RESULTS
		fi;
		position = upto;
		covered = upto;
		since = known[RESULTS];
		upto = 0;
		acknowledge(position);
#ifdef MUTATE_LETTERS_AFTER
		if
		:: dead != 0 -> goto send_letters
		:: else
		fi;
#endif
		goto next_batch;

not_committed:
		sent = 0;
		upto = 0;
		dead = 0;
		read_back();
		goto next_batch;

ended:
		/* A worker that has the pin takes over again. So does one that hasn't noticed that it lost the pin. */
		forget();
		if
		:: pin == w
		:: pin != w && stale > 0 -> stale--
		:: pin != w -> goto stop
		fi;
#if DEAD && !defined(MUTATE_READ_LETTERS_LATE)
		read_letters();
#endif
		goto waiting
	}
#if CRASH
	/* A worker crashes, or freezes for good. The last worker doesn't. The request may still arrive. */
	:: atomic {
		w < WORKERS && step != READING ->
		if
		:: REQUEST(slot).state == SENT -> REQUEST(slot).late = true
		:: else -> clear(slot)
		fi;
		goto stop
	}
#endif
	fi;
stop:
	atomic { forget(); number = 0 }
}

/* When nothing can happen any more, every input is settled. */
proctype Final() {
	timeout -> assert(SETTLED(INPUTS))
}

init {
	byte i = 1;
	atomic {
		run Final();
		do
		:: i <= WORKERS -> run Network(i); i++
		:: else -> i = 1; break
		od;
		do
		:: i <= WORKERS -> run Worker(i); i++
		:: else -> i = 0; break
		od
	}
}
