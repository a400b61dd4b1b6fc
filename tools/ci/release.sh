#!/bin/sh
# .github/workflows/release.yml runs it in a container of Debian: tools/release with what it needs. KEY: the secret key that signs, or empty.
set -eu
apt-get update -qq
DEBIAN_FRONTEND=noninteractive apt-get install -qq --no-install-recommends \
  apt-utils arch-test dpkg-dev git gpg gpg-agent iproute2 mmdebstrap umoci xz-utils >/dev/null
git config --global --add safe.directory "$PWD"
[ -z "${KEY:-}" ] || echo "$KEY" | gpg --batch --import
signer=$(gpg --batch --list-secret-keys --with-colons | awk -F: '$1 == "fpr" {print $10; exit}')
tools/release --output release ${signer:+--sign "$signer"}
