/* Host names and addresses. The table of what is not public follows the IANA special-purpose registries. */
#include "net.h"

#include <arpa/inet.h>
#include <ctype.h>
#include <errno.h>
#include <ifaddrs.h>
#include <netinet/in.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

int net_host_port(const char *text, int fallback, char *host, size_t cap, int *port)
{
	const char *end, *colon = NULL;
	bool v6 = *text == '[';
	if (v6) {
		text++;
		end = strchr(text, ']');
		if (!end || (end[1] && end[1] != ':'))
			return -EINVAL;
		colon = end[1] ? end + 1 : NULL;
	} else {
		colon = strchr(text, ':');
		end = colon ? colon : text + strlen(text);
	}
	size_t n = (size_t)(end - text);
	if (!n || n >= cap || n > 253)
		return -EINVAL;
	for (size_t i = 0; i < n; i++) {
		unsigned char c = (unsigned char)text[i];
		if (v6 ? !isxdigit(c) && c != ':' && c != '.' : !isalnum(c) && c != '-' && c != '.' && c != '_')
			return -EINVAL;
		host[i] = (char)tolower(c);
	}
	host[n] = 0;
	if (!v6 && (host[0] == '.' || host[0] == '-' || host[n - 1] == '.' || strstr(host, "..")))
		return -EINVAL; /* a final dot would be another spelling of a name */
	*port = fallback;
	if (!colon)
		return 0;
	size_t digits = strspn(colon + 1, "0123456789");
	if (!digits || digits > 5 || colon[1 + digits])
		return -EINVAL;
	*port = atoi(colon + 1);
	return *port > 0 && *port < 65536 ? 0 : -EINVAL;
}

bool net_is_literal(const char *host)
{
	struct in_addr a; /* inet_aton takes "127.1", "0x7f000001" and "2130706433", as resolvers do */
	if (strchr(host, ':') || inet_aton(host, &a))
		return true;
	const char *last = strrchr(host, '.');
	last = last ? last + 1 : host;
	return *last && strspn(last, "0123456789") == strlen(last); /* no top-level domain is a number */
}

/* ---- ranges ---- */

static const struct {
	const char *net;
	int bits;
} not_public4[] =
	{
		{"0.0.0.0", 8},	      {"10.0.0.0", 8},	    {"100.64.0.0", 10},	   {"127.0.0.0", 8},
		{"169.254.0.0", 16},  {"172.16.0.0", 12},   {"192.0.0.0", 24},	   {"192.0.2.0", 24},
		{"192.31.196.0", 24}, {"192.52.193.0", 24}, {"192.88.99.0", 24},   {"192.168.0.0", 16},
		{"192.175.48.0", 24}, {"198.18.0.0", 15},   {"198.51.100.0", 24},  {"203.0.113.0", 24},
		{"224.0.0.0", 4},     {"240.0.0.0", 4},	    {"168.63.129.16", 32}, /* a cloud's host agent */
};
static const struct {
	const char *net;
	int bits;
} private4[] = {{"127.0.0.0", 8}, {"10.0.0.0", 8}, {"172.16.0.0", 12}, {"192.168.0.0", 16}, {"169.254.0.0", 16}};

static bool in4(uint32_t a, const char *net, int bits)
{
	struct in_addr n;
	inet_pton(AF_INET, net, &n);
	return !((a ^ ntohl(n.s_addr)) >> (32 - bits));
}

static bool public4(uint32_t a)
{
	for (size_t i = 0; i < sizeof not_public4 / sizeof *not_public4; i++)
		if (in4(a, not_public4[i].net, not_public4[i].bits))
			return false;
	return true;
}

static uint32_t word(const unsigned char *p)
{
	return (uint32_t)p[0] << 24 | (uint32_t)p[1] << 16 | (uint32_t)p[2] << 8 | p[3];
}

/* Only 2000::/3 is given out; parts of it carry an IPv4 address or are reserved. */
static bool public6(const unsigned char *a)
{
	static const unsigned char nat64[12] = {0, 0x64, 0xff, 0x9b};
	static const unsigned char mapped[12] = {[10] = 0xff, [11] = 0xff};
	if (!memcmp(a, nat64, 12) || !memcmp(a, mapped, 12))
		return public4(word(a + 12));
	if ((a[0] & 0xe0) != 0x20)
		return false; /* loopback, unspecified, compatible, unique local, link-local, multicast... */
	if (a[0] == 0x20 && a[1] == 0x02)
		return public4(word(a + 2)); /* 6to4 */
	uint32_t first = word(a);
	if (first >> 9 == 0x20010000 >> 9 || first == 0x20010db8) /* Teredo, benchmarks, ORCHID...; documentation */
		return false;
	return first >> 12 != 0x3fff0000 >> 12; /* documentation */
}

bool net_public(const struct sockaddr *sa)
{
	if (sa->sa_family == AF_INET)
		return public4(ntohl(((const struct sockaddr_in *)sa)->sin_addr.s_addr));
	if (sa->sa_family == AF_INET6)
		return public6(((const struct sockaddr_in6 *)sa)->sin6_addr.s6_addr);
	return false;
}

bool net_near(const char *host)
{
	struct in_addr a;
	struct in6_addr b;
	if (!strcmp(host, "localhost"))
		return true;
	if (inet_pton(AF_INET, host, &a) == 1) {
		for (size_t i = 0; i < sizeof private4 / sizeof *private4; i++)
			if (in4(ntohl(a.s_addr), private4[i].net, private4[i].bits))
				return true;
		return false;
	}
	return inet_pton(AF_INET6, host, &b) == 1 &&
	       (IN6_IS_ADDR_LOOPBACK(&b) || IN6_IS_ADDR_LINKLOCAL(&b) || (b.s6_addr[0] & 0xfe) == 0xfc);
}

static bool same(const struct sockaddr *a, const struct sockaddr *b)
{
	if (a->sa_family != b->sa_family)
		return false;
	if (a->sa_family == AF_INET)
		return ((const struct sockaddr_in *)a)->sin_addr.s_addr ==
		       ((const struct sockaddr_in *)b)->sin_addr.s_addr;
	return a->sa_family == AF_INET6 &&
	       !memcmp(&((const struct sockaddr_in6 *)a)->sin6_addr, &((const struct sockaddr_in6 *)b)->sin6_addr, 16);
}

bool net_own(const struct sockaddr *sa)
{
	struct ifaddrs *all;
	bool own = false;
	if (getifaddrs(&all))
		return true; /* not known: not allowed */
	for (struct ifaddrs *i = all; i && !own; i = i->ifa_next)
		own = i->ifa_addr && same(i->ifa_addr, sa);
	freeifaddrs(all);
	return own;
}

int net_parse(const char *text, struct sockaddr_storage *out)
{
	char host[64];
	int port;
	struct sockaddr_in *v4 = (struct sockaddr_in *)out;
	struct sockaddr_in6 *v6 = (struct sockaddr_in6 *)out;
	*out = (struct sockaddr_storage){0};
	if (net_host_port(text, 0, host, sizeof host, &port))
		return -EINVAL;
	if (inet_pton(AF_INET, host, &v4->sin_addr) == 1) {
		v4->sin_family = AF_INET;
		v4->sin_port = htons((uint16_t)port);
		return sizeof *v4;
	}
	if (inet_pton(AF_INET6, host, &v6->sin6_addr) != 1)
		return -EINVAL;
	v6->sin6_family = AF_INET6;
	v6->sin6_port = htons((uint16_t)port);
	return sizeof *v6;
}
