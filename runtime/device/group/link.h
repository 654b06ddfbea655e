/* link.h - ranks of one model in several processes: which rank this process is (launcher.c), and the connections between all of
 * them, which meeting.h makes: for calls (remote.c), and for what kernels exchange (wire_*), with a thread on each side that
 * receives.
 *
 * Structs go as they are in memory: all processes run one build of ftx on one kind of machine. Whoever reaches the ports may
 * take part: they belong into a network of one's own. */
#ifndef FTX_GROUP_LINK_H
#define FTX_GROUP_LINK_H

#include <stdbool.h>

#include "../../../kernels/device/io.h"
#include "../../base/error.h"
#include "../../base/memory.h"
#include "../device.h"

/* Meets the other ranks, which must have the same artifact. One in a process at a time. o: allocator and log; NULL: none. */
FtxStatus links_open(const FtxOptions *o, int rank, int ranks, uint64_t artifact, Links **out, FtxError *err);
void links_close(Links *l); /* l may be NULL */
int links_rank(const Links *l);
int links_ranks(const Links *l);

int links_timeout(const Links *l); /* FTX_PEER_TIMEOUT */

char *links_word(Links *l); /* [FTX_JOIN_WORD]: what rank 0 tells all ranks when they join (DeviceApi.join_word) */

/* The number of the GPU that a launcher means for this process: its number on the machine (SLURM_LOCALID,
 * OMPI_COMM_WORLD_LOCAL_RANK, MPI_LOCALRANKID); 0: none is set. */
FtxStatus link_local(int *number, FtxError *err);

/* Calls: rank 0 with each other rank. All must have come in `seconds`; 0: it may begin as long as the connection is there, and
 * ends within FTX_PEER_TIMEOUT then. */
FtxStatus link_send(Links *l, int rank, const void *p, size_t bytes, FtxError *err);
FtxStatus link_receive(Links *l, int rank, void *p, size_t bytes, int seconds, FtxError *err);
/* on: rank 0 has made its part of a call, so answers are due within FTX_PEER_TIMEOUT. Off: a call begins. */
void links_hurry(Links *l, bool on);
void link_stop(Links *l, int rank); /* ends both, now and later; from any thread */

/* What kernels of the CPU exchange: the parts of other ranks appear at wire_address, as if that rank had stored them. */
FtxStatus wire_open(Links *l, FtxExchange *own, uint64_t bytes,
                    FtxError *err); /* bytes: FtxPeers.bytes, always the same */
uint64_t wire_address(const Links *l, int rank);
uint64_t wire_report(const Links *l); /* for FtxPeers.report: an ExchangeWire */
void wire_close(Links *l);
int wire_lost(const Links *l); /* the rank whose connection has ended; -1: none */

#endif
