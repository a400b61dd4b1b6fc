# Sourced by rxe-peer: `up`, the keeper and teardown.

# Length of the queue to a slow guest; a real wire would not be slower. A window of small packets has thousands.
QUEUE=16384

valid_name() { [[ $1 =~ ^[A-Za-z0-9_.-]{1,12}$ ]] || die "not a usable name (at most 12 of A-Za-z0-9_.-): $1"; }
valid_num() { [[ $2 =~ ^[0-9]+$ ]] || die "$1 wants a number: $2"; }

next_addr() { # a.b.c.d/len -> a.b.c.(d+1)/len
	local a=${1%/*} l=${1#*/}
	echo "${a%.*}.$((${a##*.} + 1))/$l"
}

next_addr6() { # ...::N/len -> ...::(N+1)/len
	local a=${1%/*} l=${1#*/}
	printf '%s:%x/%s\n' "${a%:*}" $((0x${a##*:} + 1)) "$l"
}

# The second NIC of guest 1, for a user-space driver: an emulated model on a tap of its own. An IOMMU isolates it, as
# Debian's kernel has no VFIO without one. /usr and the folder of --share are 9p file systems, to be read.
nic_args() { # directory -> nic
	nic=(-device "intel-iommu,intremap=on"
		-netdev "tap,id=nic-tap,ifname=$tap.nic,script=no,downscript=no,vhost=off,queues=$QUEUES"
		-device "$NIC,netdev=nic-tap,id=nic,romfile=,mac=02:72:78:65:00:f1"
		-fsdev "local,id=usr,path=/usr,security_model=none,readonly=on,multidevs=remap"
		-fsdev "local,id=share,path=$SHARE,security_model=none,readonly=on,multidevs=remap"
		-device virtio-9p-pci,fsdev=usr,mount_tag=usr -device virtio-9p-pci,fsdev=share,mount_tag=share
		-qmp "unix:$1/qmp.sock,server=on,wait=off")
}

start_guest() { # number tap ip ip6 count
	local g=$1 dir=$STATE/g$1 k args=() in_ns=(ip netns exec "$NETNS") net qpid i machine=pc nic=()
	mkdir -p "$dir"
	[ -n "$NIC" ] && [ "$g" = 1 ] && { machine=q35,kernel-irqchip=split; nic_args "$dir"; }
	net=tap,id=n0,ifname=$2,script=no,downscript=no,vhost=off
	if [ "$DGRAM" = 1 ]; then
		in_ns=()
		net=dgram,id=n0,local.type=unix,local.path=$dir/wire.guest,remote.type=unix,remote.path=
		case $5 in
		1) net+=$dir/wire.host ;;
		*) net+=$STATE/g$((3 - g))/wire.guest ;;
		esac
	fi
	for ((k = 0; k < NCHAN; k++)); do
		args+=(-chardev "socket,id=x$k,path=$dir/exec.$k.sock,server=on,wait=off"
			-device "virtserialport,chardev=x$k,name=rxe.exec.$k")
	done
	# maxcpus is one more than the CPUs: for a machine that can only have one, QEMU before 8.1 omits the memory
	# barriers of emulated code, and virtio_net may then wait for a notification that the guest considers unnecessary.
	timeout 60 "${in_ns[@]}" nice -n "$NICE" qemu-system-x86_64 \
		-name "$PROG-$NETNS-g$g" -M "$machine,accel=$ACCEL" -cpu max -smp "$SMP,maxcpus=$((SMP + 1))" -m "$MEM" \
		-nodefaults -no-user-config -display none -no-reboot "${nic[@]:0:2}" \
		-kernel "$CACHE/kernel" -initrd "$CACHE/initramfs" \
		-append "console=ttyS0 quiet loglevel=4 panic=-1 nokaslr mitigations=off audit=0 rcupdate.rcu_expedited=1 random.trust_cpu=on cryptomgr.notests tsc=reliable no_timer_check uroce.name=peer$g uroce.ip=$3 uroce.ip6=$4 uroce.mtu=$MTU $APPEND" \
		-chardev "file,id=con,path=$dir/console.log" -serial chardev:con \
		-netdev "$net" \
		-device "virtio-net-pci,netdev=n0,romfile=,mac=$(printf '02:72:78:65:00:%02x' "$g"),csum=off,gso=off,guest_csum=off,guest_tso4=off,guest_tso6=off,guest_ecn=off,guest_ufo=off,host_tso4=off,host_tso6=off,host_ecn=off,host_ufo=off" \
		-device virtio-serial-pci -device virtio-rng-pci "${args[@]}" "${nic[@]:2}" \
		-pidfile "$dir/qemu.pidfile" -daemonize >"$dir/qemu.log" 2>&1 9>&- ||
		{ cat "$dir/qemu.log" >&2; return 1; }
	for ((i = 0; i < 50; i++)); do
		read -r qpid 2>/dev/null <"$dir/qemu.pidfile" && break
		sleep 0.1
	done
	record_pid "$dir/qemu.pid" "$qpid"
}

lock_rig() { # on file descriptor 9; unlock_rig also removes the lock file
	local i f=$STATE_BASE/lock.$NETNS
	for ((i = 0; i < 20; i++)); do
		(umask 077; mkdir -p "$STATE_BASE") || die "cannot make $STATE_BASE"
		[ -O "$STATE_BASE" ] || die "$STATE_BASE belongs to someone else"
		exec 9>"$f" || continue
		flock -w 60 9 || break
		[ "$f" -ef /proc/self/fd/9 ] && return 0
	done
	die "another $PROG works on $NETNS"
}

unlock_rig() {
	[ -e "$STATE" ] || rm -f "$STATE_BASE/lock.$NETNS"
	exec 9>&-
	rmdir "$STATE_BASE" 2>/dev/null
	return 0
}

# Options of `up` into variables of cmd_up.
up_options() {
	while [ $# -gt 0 ]; do
		case $1 in
		--bridge) bridge=1; shift; continue ;;
		--dgram) DGRAM=1; shift; continue ;;
		--netns | --tap | --peer-ip | --host-ip | --peer-ip6 | --host-ip6 | --mtu | --count | \
			--smp | --mem | --accel | --nice | --boot-timeout | --lifetime | --append | --nic | --queues | --share)
			[ $# -ge 2 ] || die "$1 wants a value" ;;
		*) usage >&2; exit 2 ;;
		esac
		case $1 in
		--netns) NETNS=$2 ;;
		--tap) tap=$2 ;;
		--peer-ip) pip=$2 ;;
		--host-ip) hip=$2 ;;
		--peer-ip6) pip6=$2 ;;
		--host-ip6) hip6=$2 ;;
		--mtu) valid_num "$1" "$2"; MTU=$2 ;;
		--count) count=$2 ;;
		--smp) valid_num "$1" "$2"; SMP=$2 ;;
		--mem) valid_num "$1" "$2"; MEM=$2 ;;
		--accel) ACCEL=$2 ;;
		--boot-timeout) valid_num "$1" "$2"; boot=$2 ;;
		--lifetime) valid_num "$1" "$2"; life=$2 ;;
		--append) APPEND=$2 ;;
		--nice) NICE=$2 ;;
		--nic) NIC=$2; bridge=1 ;;
		--share) SHARE=$(readlink -f "$2") ;;
		--queues) valid_num "$1" "$2"; QUEUES=$2 ;;
		esac
		shift 2
	done
	[[ $NETNS =~ ^[A-Za-z0-9_.-]{1,40}$ ]] || die "not a usable name: $NETNS"
	valid_name "$tap"
	case $count in 1) ;; 2) bridge=1 ;; *) die "--count is 1 or 2" ;; esac
	[ $DGRAM = 0 ] || [ -z "$NIC" ] || die "--nic needs a tap, and --dgram has none"
	[ $DGRAM = 0 ] || bridge=0
	[ -z "$NIC" ] || APPEND+=' intel_iommu=on iommu=pt'
}

# Removes the remains of an earlier rig of this name. A running one stays.
clear_state() {
	local g
	[ -e "$STATE" ] || return 0
	for g in 1 2; do
		alive "$STATE/g$g/qemu.pid" && die "$NETNS is already up; '$PROG down' first"
	done
	teardown
}

write_config() {
	echo "netns=$NETNS"
	if [ $DGRAM = 0 ]; then
		echo "if=$tap"
	elif [ "$count" = 1 ]; then
		echo "wire_host=$STATE/g1/wire.host"
		echo "wire_guest=$STATE/g1/wire.guest"
	fi
	echo "count=$count"
	echo "peer_ip=$pip"
	echo "host_ip=$hip"
	echo "peer_ip6=$pip6"
	echo "host_ip6=$hip6"
	echo "mtu=$MTU"
	echo "bridge=$bridge"
	[ -n "$NIC" ] && echo "qmp=$STATE/g1/qmp.sock"
	[ "$count" = 2 ] && echo "peer2_ip=$(next_addr "$pip")"
	[ "$count" = 2 ] && [ -n "$pip6" ] && echo "peer2_ip6=$(next_addr6 "$pip6")"
	return 0
}

wait_for_guest() { # number
	local out
	out=$("$CACHE/rxe-exec" -n -d "$STATE/g$1" -t "$boot" -- cat /run/ready 2>&1 9>&-)
	case $out in
	ok*) return 0 ;;
	esac
	note "guest $1: ${out:-no answer}"
	tail -n 15 "$STATE/g$1/console.log" >&2
	die "guest $1 did not come up"
}

cmd_up() {
	local tap=rxe-tap0 pip=192.0.2.2/24 hip=192.0.2.1/24 pip6='' hip6='' count=1 bridge=0
	local boot=180 life=3600 g d t0=$SECONDS
	MTU=4200 SMP=1 MEM=512 ACCEL=${RXE_PEER_ACCEL:-} APPEND='' DGRAM=0 NICE=0 NIC='' QUEUES=1 SHARE=$HERE
	up_options "$@"
	# KVM only on a CPU that has it; /dev/kvm alone says too little
	[ -n "$ACCEL" ] || { [ -w /dev/kvm ] && grep -qw 'vmx\|svm' /proc/cpuinfo && ACCEL=kvm:tcg; }
	[ -n "$ACCEL" ] || ACCEL=tcg
	[ "$UID" = 0 ] || [ $DGRAM = 1 ] || die "up needs root (a network namespace and tap devices), or --dgram"
	[ -e "$CACHE/stamp" ] || die "nothing built yet: run '$PROG build'"
	STATE=$STATE_BASE/$NETNS
	[ ${#STATE} -le 80 ] || die "state directory path too long: $STATE"
	lock_rig
	clear_state
	[ $DGRAM = 0 ] && [ -e "/run/netns/$NETNS" ] &&
		{ unlock_rig; die "the namespace $NETNS exists and is not ours"; }
	mkdir -p "$STATE"
	write_config >"$STATE/config"
	trap 'note "up failed"; teardown; unlock_rig' EXIT
	trap 'exit 1' INT TERM
	[ $DGRAM = 1 ] || up_net "$tap" "$hip" "$hip6" "$count" "$bridge" ||
		die "cannot set up the network"
	setsid "$0" __keeper "$NETNS" "$life" </dev/null >/dev/null 2>&1 9>&- &
	record_pid "$STATE/keeper.pid" $!
	for ((g = 1; g <= count; g++)); do
		if [ $bridge = 1 ]; then d=$tap.g$g; else d=$tap; fi
		start_guest "$g" "$d" "$pip" "$pip6" "$count" || die "QEMU did not start"
		pip=$(next_addr "$pip")
		[ -n "$pip6" ] && pip6=$(next_addr6 "$pip6")
	done
	for ((g = 1; g <= count; g++)); do
		wait_for_guest "$g"
	done
	trap - INT TERM EXIT
	echo "boot_s=$((SECONDS - t0))" >>"$STATE/config"
	unlock_rig
	cat "$STATE/config"
}

up_net() { # tap host-ip host-ip6 count bridge
	local ns=(ip -n "$NETNS") d g
	ip netns add "$NETNS" || return 1
	touch "$STATE/owned"
	ip netns exec "$NETNS" sh -c 'for d in all default; do
		echo 0 >/proc/sys/net/ipv6/conf/$d/accept_dad
		echo 0 >/proc/sys/net/ipv6/conf/$d/accept_ra
		echo 0 >/proc/sys/net/ipv6/conf/$d/router_solicitations
		done' 2>/dev/null
	"${ns[@]}" link set lo up || return 1
	if [ "$5" = 0 ]; then
		"${ns[@]}" tuntap add dev "$1" mode tap || return 1
		"${ns[@]}" link set "$1" mtu "$MTU" txqueuelen "$QUEUE" || return 1
	else
		"${ns[@]}" link add "$1.br" type bridge stp_state 0 forward_delay 0 mcast_snooping 0 || return 1
		"${ns[@]}" link set "$1.br" mtu "$MTU" addrgenmode none &&
			"${ns[@]}" link set "$1.br" up || return 1
		"${ns[@]}" link add "$1" type veth peer name "$1.p" || return 1
		"${ns[@]}" link set "$1" mtu "$MTU" || return 1
		"${ns[@]}" link set "$1.p" mtu "$MTU" addrgenmode none master "$1.br" up || return 1
		for ((g = 1; g <= $4; g++)); do
			d=$1.g$g
			"${ns[@]}" tuntap add dev "$d" mode tap || return 1
			"${ns[@]}" link set "$d" mtu "$MTU" txqueuelen "$QUEUE" addrgenmode none master "$1.br" up || return 1
		done
		[ -z "$NIC" ] || nic_tap "$1" || return 1
	fi
	[ "$2" = none ] && [ -z "$3" ] && "${ns[@]}" link set "$1" addrgenmode none
	"${ns[@]}" link set "$1" address 02:72:78:65:00:fe up || return 1
	[ "$2" = none ] || "${ns[@]}" addr add "$2" dev "$1" || return 1
	[ -z "$3" ] || "${ns[@]}" -6 addr add "$3" dev "$1" nodad || return 1
}

nic_tap() { # host interface
	local several=()
	[ "$QUEUES" = 1 ] || several=(multi_queue)
	"${ns[@]}" tuntap add dev "$1.nic" mode tap "${several[@]}" &&
		"${ns[@]}" link set "$1.nic" mtu "$MTU" txqueuelen "$QUEUE" addrgenmode none master "$1.br" up
}

# The keeper stops a rig that was not taken down.
cmd_keeper() {
	local s
	NETNS=$1
	STATE=$STATE_BASE/$NETNS
	sleep "$2" &
	s=$!
	trap 'kill "$s" 2>/dev/null; exit 0' TERM INT
	wait "$s"
	trap - TERM INT
	lock_rig
	rm -f "$STATE/keeper.pid"
	teardown
	unlock_rig
}

teardown() {
	local g
	stop_pid "$STATE/keeper.pid" TERM 2
	stop_pid "$STATE/pcap.pid" INT 5
	for g in 1 2; do
		stop_pid "$STATE/g$g/qemu.pid" TERM 5
	done
	if [ -e "$STATE/owned" ] && [ -e "/run/netns/$NETNS" ]; then
		local d
		for d in $(ip -n "$NETNS" -o link show 2>/dev/null | sed -n 's/^[0-9]*: \([^:@]*\).*/\1/p'); do
			[ "$d" = lo ] || ip -n "$NETNS" link del "$d" 2>/dev/null
		done
		ip netns del "$NETNS"
	fi
	rm -rf "$STATE"
}
