/* Talking to a container through its socket (box.h). For the driver of kind container; worker threads. */
#pragma once
#include "backend/base/buf.h"
#include "backend/base/err.h"

/* Connects, sends the line and reads the first line of the answer; what follows its "ok" goes to more (or NULL). The
 * connection, whose next bytes are those behind it, or -errno: -ENOTCONN if nobody listens, -EIO with its words if it
 * refused, -ETIMEDOUT. */
int box_request(const char *socket, const char *line, int ms, struct buf *more, struct err *err);
