/* exec_stream.h: output of an exec as a frame stream or as JSON lines.
 *
 * Loop thread. Takes the request over: the status is decided by the edge's first
 * answer (an error before it is an HTTP error), then frames until the exit event.
 * Bounded: credit goes back to the edge only when at most STREAM_LOW bytes are
 * unsent, so a slow client holds STREAM_LOW plus one window (256 KiB) and framing.
 */
#pragma once
#include "control/control.h"
#include "control/request.h"

#define STREAM_LOW (64 * 1024)

/* rq asks for exec_start with follow, or for exec_output. started: whether the
 * answer begins with a "started" event (an exec_start's does). */
void exec_stream(struct request *r, size_t edge, const Dsec__Edge__EdgeRequest *rq, uint64_t stdout_offset,
		 uint64_t stderr_offset);
/* The same question, all output collected into one JSON answer (?wait=true). */
void exec_collect(struct request *r, size_t edge, const Dsec__Edge__EdgeRequest *rq);

int streams_new(struct control *ctl, struct streams **ret); /* keepalives */
void streams_close(struct streams *s);
