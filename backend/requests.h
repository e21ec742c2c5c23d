/* The transactions of requests: what changes a session or the whole by a face's wish. Store thread; the argument of
 * each is the struct request. */
#pragma once
#include "core.h"

tx_fn message_fn, ctl_fn, ship_fn, setting_fn, rename_fn, destroy_fn, project_remove_fn, publish_fn, approve_fn,
	revoke_fn;
/* After ctl_fn or destroy_fn: does the step that is going on have to end now? */
bool request_cancels(const struct request *r);
