/* Verbs of the command line for people who go into a sandbox. Each returns an exit code. */
#pragma once

int connect_main(const char *name);
/* argv: NULL-terminated command, or none for a shell. */
int ssh_main(const char *name, char **command);
int ssh_config_main(void);
