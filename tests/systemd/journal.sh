# Run a journald where a test's manager runs; $1 is the program. Says when it takes lines.
mkdir -p /run/log /run/systemd/journal /run/systemd/journald.conf.d
printf '[Journal]\nStorage=volatile\nReadKMsg=no\nAudit=no\nForwardToWall=no\nForwardToSyslog=no\n' > /run/systemd/journald.conf.d/busd.conf
mount -t tmpfs busd /run/log
"$1" & journald=$!
trap 'kill $journald || true; wait $journald || true; umount /run/log; rm -r /run/systemd/journal' TERM
until systemd-cat --identifier=busd-test true && journalctl --sync; do
    kill -0 $journald
    sleep 0.05
done
echo ready
wait $journald
