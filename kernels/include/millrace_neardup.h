/* millrace_neardup.h: the structures of the index of near-duplicates. millrace.h includes it, and its rules apply. */
#ifndef MILLRACE_NEARDUP_H
#define MILLRACE_NEARDUP_H

#include <stdint.h>

/* The index of near-duplicates of one partition, on one stream. The package comment of internal/operator/neardup has its
 * rule. neardup_create allocates all memory of an index. */
typedef struct millrace_neardup millrace_neardup;

/* The size of an index. */
typedef struct millrace_neardup_parameters {
    uint32_t size;    /* size of this structure */
    uint32_t bands;   /* number of keys of a record, 1 to 64 */
    uint64_t records; /* maximum number of records in a generation, 1 to 2^30 */
    uint64_t batch;   /* maximum number of records in a batch: 1 to 2^20, and at most `records` */
} millrace_neardup_parameters;

/* The memory of an index, in bytes, and the layout of a result. */
typedef struct millrace_neardup_memory {
    uint32_t size;    /* size of this structure */
    uint32_t list;    /* size of a record's lists */
    uint64_t device;  /* device memory of the index */
    uint64_t result;  /* size of the result of the largest batch */
    uint64_t lists;   /* position of the lists in the largest result; for each record that a batch lacks, the position is 32 lower */
    uint32_t carried; /* position of the second list in a record's lists */
    uint32_t spare;
} millrace_neardup_memory;

/* A position: a record's message and its number in the message. */
typedef struct millrace_neardup_position {
    uint64_t sequence, record;
} millrace_neardup_position;

/* A batch of records. The addresses are in device memory or in pinned host memory, which is read and written in place.
 * The memory must remain valid until the stream has passed the call. */
typedef struct millrace_neardup_batch {
    uint32_t size;      /* size of this structure */
    uint32_t spare;
    uint64_t records;   /* at least 1 */
    uint64_t keys;      /* little-endian uint64: the keys of record 0 by band, then those of record 1, ... The lowest w bits of
                           a key are its band + 1, where 2^w is the smallest power of two above the number of bands */
    uint64_t positions; /* millrace_neardup_position of each record, ascending from batch to batch */
    uint64_t result;    /* receives a millrace_neardup_header, a millrace_neardup_row for each record, and the lists of each
                           record; aligned to 16. Only the used elements of a list are written. */
} millrace_neardup_batch;

typedef struct millrace_neardup_header {
    uint64_t carried; /* number of labels that the generation's records carry over so far, including labels without space */
    uint64_t wrong;   /* number of keys with a wrong band since the index was created. They got the right band. */
} millrace_neardup_header;

/* A record's verdict, and what the log needs. The lists: first `also` positions, the other labels of its hits in ascending
 * order. Then, unless it is relabeled, `carries` labels of its copied keys in the order of their first bands: position and
 * set of bands, 24 bytes each. */
typedef struct millrace_neardup_row {
    uint64_t sequence, record; /* label of the record: the least label of its hits, or its own position */
    uint64_t inserted;         /* set of the bands of the keys that it inserted */
    uint8_t hits;              /* number of keys that the index already contained */
    uint8_t also;
    uint8_t carries;           /* number of different labels of its copied keys */
    uint8_t relabeled;         /* 1 if its copied keys have its own label, because the generation has no space for theirs */
    uint32_t spare;
} millrace_neardup_row;

/* Consecutive records of a log that belong to one generation. The rules for addresses are those of a batch. */
typedef struct millrace_neardup_rows {
    uint32_t size;           /* size of this structure */
    uint32_t spare;
    uint64_t first;          /* the first record's number in its generation. It follows the last record of the index, or is 0
                                after a full generation. */
    uint64_t records;        /* 1 to 2^20 */
    uint64_t labels;         /* millrace_neardup_position of each record's label */
    uint64_t carries;        /* sum of the rows' `carries` */
    uint64_t carried;        /* number of labels that these records carry over; relabeled records have none */
    uint64_t first_carried;  /* number of labels that earlier records of the generation carry over */
    uint64_t carried_labels; /* millrace_neardup_position of each label */
    uint64_t keys;           /* number of keys that these records inserted */
    uint64_t inserted;       /* the keys, as in a batch */
    uint64_t key_labels;     /* uint32 for each key: the number of its carried label in the generation, or the number of
                                records of a generation plus its record's number in its generation */
    uint64_t conflicts;      /* a uint64 to which the number of keys is added that were there already, are 0 or have other
                                labels. If it isn't 0, the log contradicts itself, and the index must not be used. */
} millrace_neardup_rows;

#endif /* MILLRACE_NEARDUP_H */
