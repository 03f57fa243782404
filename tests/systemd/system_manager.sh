# Become a system's manager in namespaces of its own; nothing outside of them is changed.
# $1 is a folder of the test's; what is installed below /etc goes there.
mount -t proc proc /proc
ip link set lo up
mount -t tmpfs busd "$1/etc"
mkdir "$1/etc/upper" "$1/etc/work"
mount -t overlay -o "lowerdir=/etc,upperdir=$1/etc/upper,workdir=$1/etc/work" busd /etc
mount -t tmpfs busd /run
mount -t tmpfs busd /var/lib
mkdir /run/lock
export SYSTEMD_UNIT_PATH="/etc/systemd/system:$1/units"
export container=busd-test
exec /lib/systemd/systemd --system --unit=basic.target --log-target=null --show-status=no
