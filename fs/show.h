/* Texts that are made from memory, sizes and times of all files. Loop thread only; memory only. */
#pragma once
#include <stdint.h>
#include <sys/types.h>

#include "backend/backend.h"

struct face;
struct spot;

/* The show column of the tree. */
void show_readme(const struct spot *at, struct buf *out);
void show_status(const struct spot *at, struct buf *out); /* of the daemon */
void show_index(const struct spot *at, struct buf *out);
void show_config(const struct spot *at, struct buf *out);
void show_policy(const struct spot *at, struct buf *out);
void show_head(const struct spot *at, struct buf *out);
void show_tokens(const struct spot *at, struct buf *out);
void show_errors(const struct spot *at, struct buf *out);
void show_id(const struct spot *at, struct buf *out);
void show_value(const struct spot *at, struct buf *out);
void show_setting(const struct spot *at, struct buf *out);
void show_approvals(const struct spot *at, struct buf *out); /* the setting, then what is granted */
void show_approval(const struct spot *at, struct buf *out);
void show_verbs(const struct spot *at, struct buf *out);

/* The changed column: CLOCK_REALTIME ms. */
int64_t changed_status(const struct spot *at);
int64_t changed_index(const struct spot *at);
int64_t changed_config(const struct spot *at);
int64_t changed_policy(const struct spot *at);
int64_t changed_head(const struct spot *at);
int64_t changed_tokens(const struct spot *at);
int64_t changed_errors(const struct spot *at);
int64_t changed_birth(const struct spot *at);
int64_t changed_value(const struct spot *at);
int64_t changed_setting(const struct spot *at);
int64_t changed_approval(const struct spot *at);
int64_t changed_text(const struct spot *at);

/* For any row. */
uint64_t show_size(const struct spot *at);
int64_t show_changed(const struct spot *at);
double show_stays(const struct spot *at); /* seconds for which both stay if no view comes */
mode_t show_mode(const struct spot *at);
/* Size and time of a text of the backend (KIND_SNAPSHOT, KIND_GROWING). */
const struct text_info *show_text_info(const struct spot *at);

/* readme.c: the README of the mounted tree, from the table. */
void readme_make(struct buf *out);
