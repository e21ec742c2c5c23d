/* Frames of the tool protocol: round trips, cuts at every byte, and everything malformed. */
#include <errno.h>
#include <stdlib.h>

#include "backend/base/buf.h"
#include "check.h"
#include "sandbox/wire.h"

static void sample(struct wire_out *o)
{
	wire_begin(o, WIRE_REQUEST, 77);
	wire_add_num(o, WIRE_OP, WIRE_START);
	wire_add_text(o, WIRE_JOB, "call-1");
	wire_add_text(o, WIRE_CWD, NULL);
	wire_add_text(o, WIRE_ARGV, "/bin/echo");
	wire_add(o, WIRE_ARGV, "", 0);
	wire_add_num(o, WIRE_SINCE, UINT64_MAX);
	wire_end(o, "a\0b", 3);
}

static void check_sample(const struct wire_msg *m)
{
	CHECK_INT(m->type, WIRE_REQUEST);
	CHECK_INT(m->id, 77);
	CHECK_INT(m->n_fields, 5);
	CHECK_INT(wire_num(m, WIRE_OP, 0), WIRE_START);
	CHECK(wire_num(m, WIRE_SINCE, 0) == UINT64_MAX);
	CHECK_INT(wire_num(m, WIRE_WAIT, 5), 5);
	CHECK_INT(wire_num(m, WIRE_JOB, 9), 9);
	char *job = wire_text(m, WIRE_JOB);
	CHECK_STR(job, "call-1");
	free(job);
	CHECK(!wire_get(m, WIRE_CWD));
	CHECK_INT(m->payload_n, 3);
	CHECK(!memcmp(m->payload, "a\0b", 3));
}

TEST(round_trip)
{
	struct wire_out o = {0};
	struct wire_reader r = {0};
	struct wire_msg m;
	sample(&o);
	sample(&o);
	wire_feed(&r, o.b.p, o.b.n);
	CHECK_INT(wire_next(&r, &m), 1);
	check_sample(&m);
	CHECK_INT(wire_next(&r, &m), 1);
	check_sample(&m);
	CHECK_INT(wire_next(&r, &m), 0);
	wire_reader_release(&r);
	wire_out_release(&o);
}

TEST(byte_by_byte)
{
	struct wire_out o = {0};
	struct wire_reader r = {0};
	struct wire_msg m;
	sample(&o);
	for (size_t i = 0; i < o.b.n; i++) {
		CHECK_INT(wire_next(&r, &m), 0);
		wire_feed(&r, o.b.p + i, 1);
	}
	CHECK_INT(wire_next(&r, &m), 1);
	check_sample(&m);
	wire_reader_release(&r);
	wire_out_release(&o);
}

/* The sample with one byte set to value. */
static int mutated(size_t at, unsigned char value)
{
	struct wire_out o = {0};
	struct wire_reader r = {0};
	struct wire_msg m;
	sample(&o);
	o.b.p[at] = (char)value;
	wire_feed(&r, o.b.p, o.b.n);
	int rc = wire_next(&r, &m);
	wire_reader_release(&r);
	wire_out_release(&o);
	return rc;
}

TEST(malformed)
{
	CHECK_INT(mutated(0, 1), -EBADMSG); /* 16 MiB and more */
	CHECK_INT(mutated(3, 8), -EBADMSG); /* shorter than its own head */
	CHECK_INT(mutated(4, 0), -EBADMSG); /* type 0 */
	CHECK_INT(mutated(4, WIRE_TYPES), -EBADMSG);
	CHECK_INT(mutated(9, 1), -EBADMSG);  /* head longer than the frame */
	CHECK_INT(mutated(12, 4), -EBADMSG); /* head ends inside a field */
	CHECK_INT(mutated(13, 0), -EBADMSG); /* tag 0 */
	CHECK_INT(mutated(13, WIRE_TAGS), -EBADMSG);
	CHECK_INT(mutated(14, 255), -EBADMSG);	      /* field longer than the head */
	CHECK_INT(mutated(13, WIRE_SINCE), -EBADMSG); /* tags descend */
	CHECK_INT(mutated(13, WIRE_JOB), -EBADMSG);   /* twice what may come once */
	CHECK_INT(mutated(3, 255), 0);		      /* not all there yet */
}

TEST(limits)
{
	struct wire_reader r = {0};
	struct wire_msg m;
	struct wire_out o = {0};
	wire_feed(&r, "\x01\x00\x00\x01", 4); /* one more than 16 MiB: refused before any of it is there */
	CHECK_INT(wire_next(&r, &m), -EBADMSG);
	wire_reader_release(&r);
	wire_begin(&o, WIRE_REQUEST, 1);
	for (int i = 0; i <= WIRE_FIELDS; i++)
		wire_add(&o, WIRE_ARGV, NULL, 0);
	wire_end(&o, NULL, 0);
	wire_feed(&r, o.b.p, o.b.n);
	CHECK_INT(wire_next(&r, &m), -EBADMSG);
	wire_reader_release(&r);
	wire_out_release(&o);
}

TEST(text_with_zero)
{
	struct wire_out o = {0};
	struct wire_reader r = {0};
	struct wire_msg m;
	wire_begin(&o, WIRE_RESULT, 1);
	wire_add(&o, WIRE_PATH, "a\0b", 3);
	wire_end(&o, NULL, 0);
	wire_feed(&r, o.b.p, o.b.n);
	CHECK_INT(wire_next(&r, &m), 1);
	CHECK(!wire_text(&m, WIRE_PATH));
	CHECK(wire_get(&m, WIRE_PATH) && wire_get(&m, WIRE_PATH)->n == 3);
	wire_reader_release(&r);
	wire_out_release(&o);
}

CHECK_MAIN()
