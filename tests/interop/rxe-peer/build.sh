# Sourced by rxe-peer: kernel, initramfs and rxe-exec in $CACHE.

apt_get() {
	DEBIAN_FRONTEND=noninteractive timeout 900 apt-get -q -o APT::Sandbox::User=root \
		-o DPkg::Lock::Timeout=300 "$@"
}

install_packages() {
	local p missing=()
	for p in "${PACKAGES[@]}"; do
		[ "$(dpkg-query -W -f '${db:Status-Status}' "$p" 2>/dev/null)" = installed ] ||
			missing+=("$p")
	done
	[ ${#missing[@]} = 0 ] && return 0
	[ "$UID" = 0 ] || die "these packages are needed: ${missing[*]}"
	note "installing ${missing[*]}"
	apt_get install -y --no-install-recommends "${missing[@]}" >"$CACHE/apt.log" 2>&1 ||
		{ apt_get update && apt_get install -y --no-install-recommends "${missing[@]}"; } \
			>>"$CACHE/apt.log" 2>&1 ||
		{ tail -n 5 "$CACHE/apt.log" >&2; die "apt-get failed"; }
}

fetch_kernel() { # -> $kdeb
	local pkg
	pkg=$(apt-cache depends linux-image-amd64 2>/dev/null |
		sed -n 's/^ *Depends: *\(linux-image-[^ ]*-amd64\).*/\1/p' | head -n 1)
	if [ -z "$pkg" ]; then
		apt_get update >"$CACHE/apt.log" 2>&1
		pkg=$(apt-cache depends linux-image-amd64 |
			sed -n 's/^ *Depends: *\(linux-image-[^ ]*-amd64\).*/\1/p' | head -n 1)
	fi
	[ -n "$pkg" ] || { note "no Debian kernel package found; is there a network and a package source?"; exit 3; }
	mkdir -p "$CACHE/deb"
	kdeb=$(ls -t "$CACHE/deb/${pkg}_"*.deb 2>/dev/null | head -n 1)
	[ -n "$kdeb" ] && return 0
	note "downloading $pkg"
	(cd "$CACHE/deb" && { apt_get download "$pkg" || { apt_get update && apt_get download "$pkg"; }; }) \
		>"$CACHE/apt.log" 2>&1 || { tail -n 5 "$CACHE/apt.log" >&2; note "can't download $pkg"; exit 3; }
	kdeb=$(ls -t "$CACHE/deb/${pkg}_"*.deb | head -n 1)
}

u8_at() { od -An -tu1 -j "$2" -N 1 "$1" | tr -d ' '; }
u32_at() { od -An -tu4 -j "$2" -N 4 "$1" | tr -d ' '; }

extract_vmlinux() { # bzImage out: the ELF image boots without being unpacked in the guest
	local off len magic
	off=$((($(u8_at "$1" 497) + 1) * 512 + $(u32_at "$1" 584)))
	len=$(u32_at "$1" 588)
	magic=$(od -An -tx1 -j "$off" -N 4 "$1" | tr -d ' ')
	tail -c +$((off + 1)) "$1" | head -c "$len" | case $magic in
	fd377a58) xz -dc --single-stream ;;
	1f8b*) gzip -dc ;;
	28b52ffd) zstd -dc ;;
	*) cat ;;
	esac >"$2" 2>/dev/null
	[ "$(od -An -tx1 -N 4 "$2" | tr -d ' ')" = 7f454c46 ]
}

system_path() { # program -> path in /usr or /; nothing under /usr/local
	local d
	for d in /usr/sbin /usr/bin /sbin /bin; do
		[ -x "$d/$1" ] && { echo "$d/$1"; return 0; }
	done
	return 1
}

add_libs() { # program root: the shared libraries it needs
	local lib
	env -i PATH="$PATH" ldd "$1" 2>/dev/null | sed -n 's/.* => \(\/[^ ]*\) .*/\1/p; s/^[ \t]*\(\/[^ ]*\) (.*/\1/p' |
		while read -r lib; do
			case $lib in
			/lib/* | /lib64/* | /usr/lib/*) ;;
			*) die "$1 uses $lib, which is not from a Debian package" ;;
			esac
			[ -e "$2/$lib" ] || install -D -m 755 "$(readlink -f "$lib")" "$2/$lib"
		done
}

add_file() { # source root: at the same path, with its libraries
	install -D -m 755 "$(readlink -f "$1")" "$2/$1" && add_libs "$1" "$2"
}

add_modules() { # work root kernel-version: those wanted and what they depend on
	local work=$1 root=$2 kver=$3 p f
	depmod -b "$work/kernel" "$kver" || die "depmod failed"
	: >"$root/etc/modules-boot"
	for p in "${BOOT_MODULES[@]}"; do
		modprobe -d "$work/kernel" -S "$kver" --show-depends "$p" >"$work/deps" 2>/dev/null ||
			die "the kernel package has no module $p"
		sed -n "s|^insmod $work/kernel\(/lib/modules/[^ ]*\).*|\1|p" "$work/deps" >>"$root/etc/modules-boot"
	done
	awk '!seen[$0]++' "$root/etc/modules-boot" >"$work/order"
	mv "$work/order" "$root/etc/modules-boot"
	cp "$root/etc/modules-boot" "$work/files"
	for p in "${MORE_MODULES[@]}"; do
		modprobe -d "$work/kernel" -S "$kver" --show-depends "$p" 2>/dev/null |
			sed -n "s|^insmod $work/kernel\(/lib/modules/[^ ]*\).*|\1|p" >>"$work/files"
	done
	sort -u "$work/files" | while read -r f; do
		install -D -m 644 "$work/kernel$f" "$root$f"
	done
	cp "$work/kernel/lib/modules/$kver/"modules.{builtin,order} "$root/lib/modules/$kver/" 2>/dev/null
	depmod -b "$root" "$kver" 2>/dev/null
}

add_programs() { # root: programs with their libraries, and the shell
	local root=$1 p f
	for p in "${PROGRAMS[@]}"; do
		if f=$(system_path "$p"); then
			add_file "$f" "$root" || exit 1
		else
			case $NEEDED_PROGRAMS in *" $p "*) die "$p is not installed" ;; esac
		fi
	done
	for f in /usr/lib/x86_64-linux-gnu/libibverbs/librxe-rdmav*.so \
		/usr/lib/x86_64-linux-gnu/libibverbs/libsiw-rdmav*.so; do
		[ -e "$f" ] && { add_file "$f" "$root" || exit 1; }
	done
	add_file /lib/x86_64-linux-gnu/libgcc_s.so.1 "$root" || exit 1 # for pthread_exit
	# for programs that the tests copy to the guest
	add_file /usr/lib/x86_64-linux-gnu/libstdc++.so.6 "$root" || exit 1
	mkdir -p "$root/etc/libibverbs.d"
	echo 'driver rxe' >"$root/etc/libibverbs.d/rxe.driver"
	echo 'driver siw' >"$root/etc/libibverbs.d/siw.driver"
	install -m 755 "$(system_path busybox)" "$root/bin/busybox"
	# dash, because the shell in busybox prefers its own ip, ps, ... to the real ones
	add_file /bin/dash "$root" || exit 1
	ln -s dash "$root/bin/sh"
	"$root/bin/busybox" --list | while read -r p; do
		[ "$p" = busybox ] || [ -e "$root/usr/sbin/$p" ] || [ -e "$root/usr/bin/$p" ] ||
			[ -e "$root/sbin/$p" ] || [ -e "$root/bin/$p" ] || ln -s /bin/busybox "$root/bin/$p"
	done
}

add_own() { # root: what is the rig's own
	local root=$1
	install -m 755 "$HERE"/guest-tools/* "$root/bin"
	install -m 755 "$HERE/guest-init" "$root/init"
	printf 'root:x:0:0:root:/root:/bin/sh\n' >"$root/etc/passwd"
	printf 'root:x:0:\n' >"$root/etc/group"
	gcc -O2 -static -o "$root/bin/execd" "$HERE/execd.c" || die "cannot compile execd.c"
	gcc -O2 -o "$root/usr/bin/rxe-cases" "$HERE/rxe-cases.c" -lrdmacm -libverbs ||
		die "cannot compile rxe-cases.c"
	add_libs "$root/usr/bin/rxe-cases" "$root" || exit 1
	cp "$root/usr/bin/rxe-cases" "$CACHE/rxe-cases"
	strip "$root/bin/execd" "$root/usr/bin/rxe-cases" 2>/dev/null
	cp "$root/bin/execd" "$CACHE/rxe-exec"
}

unpack_kernel() { # package work -> $kver, $CACHE/kernel
	dpkg-deb --fsys-tarfile "$1" | tar -x -C "$2/kernel" ./boot ./lib ||
		dpkg-deb -x "$1" "$2/kernel" || die "cannot unpack $1"
	kver=$(ls "$2/kernel/lib/modules" | head -n 1)
	extract_vmlinux "$2/kernel/boot/vmlinuz-$kver" "$CACHE/vmlinux.new" &&
		mv "$CACHE/vmlinux.new" "$CACHE/kernel" ||
		{ rm -f "$CACHE/vmlinux.new"; cp "$2/kernel/boot/vmlinuz-$kver" "$CACHE/kernel"; }
}

cmd_build() {
	local force=0 kdeb='' kver t0=$SECONDS stamp
	while [ $# -gt 0 ]; do
		case $1 in
		--force) force=1 ;;
		--kernel-deb) kdeb=$(readlink -f "$2"); shift ;;
		*) usage >&2; exit 2 ;;
		esac
		shift
	done
	mkdir -p "$CACHE" || die "cannot make $CACHE"
	exec 9>"$CACHE/lock"
	flock -w 1200 9 || die "another build is running"
	stamp=$(cat "$HERE"/{rxe-peer,build.sh,execd.c,rxe-cases.c,guest-init} "$HERE"/guest-tools/* | sha256sum |
		cut -d' ' -f1)
	if [ $force = 0 ] && [ -z "$kdeb" ] && [ "$(cat "$CACHE/stamp" 2>/dev/null)" = "$stamp" ]; then
		note "up to date: $CACHE"
		return 0
	fi
	rm -f "$CACHE/stamp"
	install_packages
	[ -n "$kdeb" ] || fetch_kernel
	[ -r "$kdeb" ] || die "no such file: $kdeb"
	local work=$CACHE/work root=$CACHE/work/root
	rm -rf "$work"
	mkdir -p "$work/kernel" "$root"
	unpack_kernel "$kdeb" "$work"
	mkdir -p "$root"/{bin,sbin,etc,proc,sys,dev,run,tmp,root,lib,lib64,usr/bin,usr/sbin,usr/lib,var/run}
	add_modules "$work" "$root" "$kver"
	add_programs "$root"
	add_own "$root"
	(cd "$root" && find . | LC_ALL=C sort | cpio -o -H newc -R 0:0 --quiet) >"$CACHE/initramfs.new" ||
		die "cpio failed"
	mv "$CACHE/initramfs.new" "$CACHE/initramfs"
	{
		echo "kernel $kver"
		dpkg-query -W -f '${Package} ${Version}\n' "${PACKAGES[@]}"
	} >"$CACHE/manifest"
	rm -rf "$work"
	echo "$stamp" >"$CACHE/stamp"
	note "built in $((SECONDS - t0)) s: kernel $kver, initramfs $(($(stat -c %s "$CACHE/initramfs") / 1024)) KiB"
}
