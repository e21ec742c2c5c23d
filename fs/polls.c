/* poll() on files. A file that only grows is readable when it has grown past what was read, `status` when it has
 * changed since it was read, a wait file when it would not block; all others always. Loop thread only. */
#include "polls.h"

#include <poll.h>

#include "handle.h"
#include "show.h"
#include "wait.h"

static unsigned ready(struct handle *h)
{
	struct spot at;
	bool yes = true;
	if (handle_spot(h, &at))
		return POLLIN | POLLHUP | POLLERR;
	if (h->file->kind == KIND_GROWING)
		yes = show_text_info(&at)->size > h->consumed;
	else if (h->file->kind == KIND_WAIT)
		yes = wait_ready(h, &at);
	else if (h->file->kind == KIND_MADE)
		yes = !h->snapped || (uint64_t)show_changed(&at) != h->consumed;
	unsigned events = yes ? POLLIN : 0;
	if (yes && h->file->kind == KIND_MADE && h->snapped)
		events |= POLLPRI; /* as the kernel does for its own attribute files */
	return handle_may_write(h) ? events | POLLOUT : events;
}

void poll_ask(struct handle *h, fuse_req_t req, struct fuse_pollhandle *ph)
{
	unsigned events = ready(h);
	if (ph) {
		struct spot at;
		if (h->ph)
			fuse_pollhandle_destroy(h->ph);
		h->ph = ph;
		list_remove(&h->poll);
		if (!handle_spot(h, &at))
			list_append(at.session ? &at.session->polls : &h->f->polls, &h->poll);
	}
	fuse_reply_poll(req, events);
}

static void tell(struct handle *h)
{
	struct fuse_pollhandle *ph = h->ph;
	h->ph = NULL;
	list_remove(&h->poll);
	if (!ph)
		return;
	fuse_lowlevel_notify_poll(ph);
	fuse_pollhandle_destroy(ph);
}

void poll_wake(struct list *polls)
{
	list_each_safe (pos, polls) {
		struct handle *h = list_entry(pos, struct handle, poll);
		if (ready(h) & POLLIN)
			tell(h);
	}
}

void poll_end(struct list *polls)
{
	while (!list_empty(polls))
		tell(list_entry(polls->next, struct handle, poll));
}
