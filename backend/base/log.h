/* The daemon's own log on standard error (and so in the journal or the log file). Any thread.
 * Library code returns errors instead of logging them; main and thread entry points log. */
#pragma once

enum log_level { LOG_ERROR, LOG_WARN, LOG_INFO, LOG_DEBUG };

void log_set_level(enum log_level level); /* default LOG_INFO; LOG_DEBUG by BERTHFS_DEBUG=1 */
__attribute__((format(printf, 2, 3))) void log_line(enum log_level level, const char *fmt, ...);

#define log_error(...) log_line(LOG_ERROR, __VA_ARGS__)
#define log_warn(...)  log_line(LOG_WARN, __VA_ARGS__)
#define log_info(...)  log_line(LOG_INFO, __VA_ARGS__)
#define log_debug(...) log_line(LOG_DEBUG, __VA_ARGS__)
