// The tests: the exchange of krping, and its measurements.
//
// ping, each round:   client                          server
//                     SEND the source           ->
//                                               <-    READ it, SEND go-ahead
//                     SEND the sink             ->
//                                               <-    WRITE it, SEND go-ahead
//                     compare
// rlat, wlat, bw: both sides SEND their adverts. Then: rlat, the client READs; wlat, both WRITE alternately; bw,
// the client (with duplex both sides) WRITEs as fast as possible.
#pragma once

#include "buffers.h"
#include "connection.h"
#include "options.h"
#include "report.h"

namespace uroce::ping {

/// Runs the test until its rounds are complete, the peer disconnects or the user interrupts it.
Result run(Connection& connection, Buffers& buffers, const Options& options);

}  // namespace uroce::ping
