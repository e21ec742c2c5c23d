/* Descriptors, files and unix sockets. Any thread. All descriptors made here are close-on-exec. */
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "buf.h"
#include "err.h"

void fd_close(int *fd); /* closes if >= 0 and sets -1; keeps errno */
#define CLEAN_FD __attribute__((cleanup(fd_close)))
static inline int take_fd(int *fd) /* moves it out of a CLEAN_FD variable */
{
	int n = *fd;
	*fd = -1;
	return n;
}

int fd_read_full(int fd, void *p, size_t n);	      /* 0, -errno, or -EPIPE at an early end */
int fd_write_full(int fd, const void *p, size_t n);   /* 0 or -errno; never SIGPIPE on sockets */
int fd_read_all(int fd, struct buf *out, size_t max); /* to the end; -EFBIG past max */
int fd_nonblock(int fd);

int file_read(const char *path, struct buf *out, size_t max, struct err *err);
/* Whole or not at all: temporary file in the same folder, fsync, rename. */
int file_write(const char *path, const void *data, size_t n, mode_t mode, struct err *err);
/* Both are on disk when they return. Removing what is not there is success. */
int file_rename(const char *from, const char *to, struct err *err); /* in one folder */
int file_remove(const char *path, struct err *err);
bool file_exists(const char *path);
int dir_make(const char *path, mode_t mode, struct err *err); /* with parents (0755 & ~umask for those) */
/* Removes a tree without following links or crossing into another file system. ENOENT is success. */
int dir_remove(const char *path, struct err *err);
/* Bytes on the disk of what lies below a folder, in its own file system; links are not followed. What is told where it
 * fails (-EAGAIN: it was moved meanwhile) is a part of it. */
int dir_bytes(const char *path, uint64_t *bytes);

/* Unix stream sockets. Paths over 107 bytes work: they are reached through a descriptor of their folder. */
int unix_listen(const char *path, mode_t mode, struct err *err); /* replaces a stale socket; fd or -errno */
int unix_connect(const char *path, struct err *err);		 /* fd or -errno */
/* The same without ever waiting: -EAGAIN if more wait to be accepted than the listener allows. Non-blocking. */
int unix_connect_now(const char *path, struct err *err);
int unix_peer(int fd, uid_t *uid, pid_t *pid); /* SO_PEERCRED */
bool unix_peer_ours(int fd);		       /* the other end is this user's, or root's */
/* What has come of a line, without waiting, byte by byte: what follows it stays in the socket. line: room for max + 1
 * bytes, of which fewer than max may be the line's; *n: those that are there. 1: it is whole, without its end; 0: there
 * is more to come; -errno: it has ended (-EPIPE) or is too long. */
int unix_line(int fd, char *line, size_t max, size_t *n);
/* Bytes, and a descriptor that goes along with the first of them (pass -1: none; it stays the caller's). flags as of
 * sendmsg(2); never SIGPIPE. Bytes sent, or -errno. */
ssize_t unix_send(int fd, const void *p, size_t n, int pass, int flags);
/* Bytes received, 0 at the end, or -errno. *pass: the descriptor that came along, the caller's and closed on exec, or
 * -1. More than one never comes in: the kernel closes the others. flags as of recvmsg(2). */
ssize_t unix_receive(int fd, void *p, size_t n, int *pass, int flags);
