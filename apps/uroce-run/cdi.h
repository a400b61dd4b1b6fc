// `uroce-run --cdi`: a specification of the Container Device Interface (CDI), by which podman, containerd and CRI-O
// put the devices into containers of any image.
#pragma once

#include <string>

#include "environment.h"

namespace uroce::run {

/// JSON of CDI 0.5.0 (github.com/cncf-tags/container-device-interface, SPEC.md). `environment.devices` are
/// uroce/rdma=NAME; without any, those that are served now, and all that ever will be are uroce/rdma=all.
/// `program`: the path of uroce-run, for a hook. Empty, with `problem`, if CDI or JSON does not permit a name.
std::string cdi_specification(const Environment& environment, const std::string& program, std::string& problem);

}  // namespace uroce::run
