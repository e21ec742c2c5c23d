/* The poker: a process that acts through the mount on behalf of the daemon. */
#pragma once

/* Carries out orders that come from fd until its other end is closed. dir and dev: the mount, as in struct mounted. */
void poker_run(int fd, const char *dir, const char *dev);
