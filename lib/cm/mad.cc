#include "cm/mad.h"

#include <cstring>

namespace uroce::cm {

static_assert(wire::MadHeader::kBytes + kMessageBytes == wire::kMadBytes);

bool parse_mad(Mad mad, Message& out) {
  const wire::MadHeader header = wire::MadHeader::parse(mad.data());
  const bool ours = header.base_version == wire::kMadBaseVersion && header.management_class == wire::kMadClassCm &&
                    header.method == wire::kMadMethodSend;
  if (!ours || header.attribute < static_cast<std::uint16_t>(Attribute::kReq) ||
      header.attribute > static_cast<std::uint16_t>(Attribute::kSidrRep)) {
    return false;
  }
  out.attribute = static_cast<Attribute>(header.attribute);
  out.class_version = header.class_version;
  const bool request = out.attribute == Attribute::kReq || out.attribute == Attribute::kSidrReq;
  if (out.class_version != wire::kMadCmClassVersion && !request) return false;
  out.transaction = header.transaction;
  out.modifier = header.modifier;
  std::memcpy(out.bytes.data(), mad.data() + wire::MadHeader::kBytes, out.bytes.size());
  return true;
}

void emit_mad(const Message& message, std::span<std::byte, wire::kMadBytes> to) {
  wire::MadHeader header;
  header.transaction = message.transaction;
  header.attribute = static_cast<std::uint16_t>(message.attribute);
  header.modifier = message.modifier;
  header.emit(to.data());
  std::memcpy(to.data() + wire::MadHeader::kBytes, message.bytes.data(), message.bytes.size());
}

}  // namespace uroce::cm
