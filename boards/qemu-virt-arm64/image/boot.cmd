# boot.cmd - U-Boot's script on a board with two systems: starts the first slot of BOOT_ORDER that has a try left.
#
# boards/update/boot-uboot.sh describes the variables. They lie in the first 512 bytes of the partition boot-env as an
# environment with a checksum: one sector, which a disk writes whole or not at all.

setenv env_at ${scriptaddr}
setexpr env_at ${env_at} + 0x100000
part start ${devtype} ${devnum} boot-env env_block
setenv BOOT_ORDER
setenv BOOT_A_LEFT
setenv BOOT_B_LEFT
if ${devtype} read ${env_at} ${env_block} 1; then
    env import -c ${env_at} 0x200 BOOT_ORDER BOOT_A_LEFT BOOT_B_LEFT
fi
if test -z "${BOOT_ORDER}" -o -z "${BOOT_A_LEFT}" -o -z "${BOOT_B_LEFT}"; then
    echo "cairn: the environment is damaged and begins again"
    setenv BOOT_ORDER "A B"
    setenv BOOT_A_LEFT 3
    setenv BOOT_B_LEFT 3
fi

setenv slot
for candidate in ${BOOT_ORDER}; do
    if test -n "${slot}"; then
        true
    elif test "${candidate}" = A -a ${BOOT_A_LEFT} -gt 0; then
        setenv slot A
        setenv label APP
        setexpr BOOT_A_LEFT ${BOOT_A_LEFT} - 1
    elif test "${candidate}" = B -a ${BOOT_B_LEFT} -gt 0; then
        setenv slot B
        setenv label APP_b
        setexpr BOOT_B_LEFT ${BOOT_B_LEFT} - 1
    fi
done
if test -z "${slot}"; then
    echo "cairn: no slot has a try left; both get three again"
    setenv BOOT_A_LEFT 3
    setenv BOOT_B_LEFT 3
fi

# Counted before the start, so that a start that hangs is counted.
env export -c -s 0x200 ${env_at} BOOT_ORDER BOOT_A_LEFT BOOT_B_LEFT
${devtype} write ${env_at} ${env_block} 1
if test -n "${slot}"; then
    echo "cairn: slot ${slot}, A has ${BOOT_A_LEFT} tries left, B ${BOOT_B_LEFT}"
    part number ${devtype} ${devnum} ${label} root_number
    part uuid ${devtype} ${devnum}:${root_number} root_uuid
    setenv bootargs "console=ttyAMA0 panic=5 quiet root=PARTUUID=${root_uuid} ro rauc.slot=${slot}"
    if load ${devtype} ${devnum}:${root_number} ${kernel_addr_r} boot/vmlinuz; then
        booti ${kernel_addr_r} - ${fdtcontroladdr}
    fi
    echo "cairn: slot ${slot} cannot be started"
fi
reset
