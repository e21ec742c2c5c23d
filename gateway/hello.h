/* What a TLS client says first: the name of the server that it wants. Pure; any thread. */
#pragma once
#include <stddef.h>

enum hello {
	HELLO_MORE,  /* it is not there as a whole yet */
	HELLO_NAMED, /* it asks for this name */
	HELLO_OTHER, /* no TLS: a server of names in TLS cannot read a name in it either */
	HELLO_BAD,   /* no name, two names, or not by the rules */
};
#define HELLO_MAX                                                                                                      \
	16384 /* bytes that are waited for; ordinary ones have some hundred, and 2,000 with keys of tomorrow */

/* The bytes that a client begins with. The name goes to out: at most cap bytes with its NUL, nothing unless
 * HELLO_NAMED.
 */
enum hello hello_name(const void *bytes, size_t n, char *out, size_t cap);
