/* stream.c: the table of streams of one connection and who waits to send.
 *
 * A stream is in the table from OPEN until it is reset, or until both ends have
 * closed and the owner has been told. It is on at most one wait list.
 */
#include <errno.h>
#include <stdlib.h>
#include "aether/aether-internal.h"

struct stream *stream_find(const struct aether *a, uint32_t id)
{
	return hashmap_get_u64(&a->streams, id);
}

int stream_new(struct aether *a, uint32_t id, bool ours, struct stream **ret)
{
	struct stream *s = calloc(1, sizeof(*s));
	if (!s)
		return -ENOMEM;
	int r = hashmap_put_u64(&a->streams, id, s);
	if (r < 0) {
		free(s);
		return r;
	}
	link_init(&s->link);
	s->id = id;
	s->ours = ours;
	s->counted = true;
	s->send_window = a->peer_window; /* 0 until greeted, then raised for all */
	s->recv_window = a->config.window;
	if (ours)
		a->n_ours++;
	else
		a->n_peers++;
	*ret = s;
	return 0;
}

static void unlink_wait(struct stream *s)
{
	s->link.prev->next = s->link.next;
	s->link.next->prev = s->link.prev;
	link_init(&s->link);
	s->wait = WAIT_NONE;
}

void stream_uncount(struct aether *a, struct stream *s)
{
	if (!s->counted)
		return;
	s->counted = false;
	if (s->ours)
		a->n_ours--;
	else
		a->n_peers--;
}

void stream_free(struct aether *a, struct stream *s)
{
	unlink_wait(s);
	stream_uncount(a, s);
	hashmap_remove_u64(&a->streams, s->id);
	if (a->dying == s->id)
		a->dying = 0;
	free(s);
	if (!hashmap_len(&a->streams))
		hashmap_done(&a->streams); /* a burst must not keep its table */
}

void stream_wait(struct aether *a, struct stream *s, enum stream_wait why)
{
	if (s->wait == WAIT_QUEUED && why != WAIT_NONE)
		return; /* the event that is due covers it */
	unlink_wait(s);
	s->wait = (uint8_t)why;
	if (why != WAIT_OUTPUT && why != WAIT_QUEUED)
		return;
	struct stream_link *list = why == WAIT_OUTPUT ? &a->wait_output : &a->writable;
	s->link.prev = list->prev;
	s->link.next = list;
	list->prev->next = &s->link;
	list->prev = &s->link;
}

bool stream_id_is_new(uint32_t newest, bool wrapped, uint32_t id)
{
	/* Ids run up and wrap (59 hours at 10,000 streams a second). Once the newest
	 * is in the upper half, and ever after, the half of the space behind it
	 * counts as used; before that only what is below it. */
	if (wrapped || newest > INT32_MAX)
		return (int32_t)(id - newest) > 0;
	return id > newest;
}
