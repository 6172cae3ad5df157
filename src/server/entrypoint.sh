set -eu
redo_capacity=$1
shift
data=/var/lib/mysql
run=/run/snaptax

server=$(command -v mariadbd || command -v mysqld) || {
    echo "this image has neither mysqld nor mariadbd" >&2
    exit 127
}
kind=$("$server" --no-defaults --version)

# The mark begins with a dot, which an initialisation overlooks. A directory that bears it was left
# half-made, by us, and is emptied; any other that is not empty holds data, and is used as it is.
mark=$data/.snaptax-initialising
if [ -e "$mark" ]; then
    for entry in "$data"/* "$data"/.[!.]*; do
        [ "$entry" = "$mark" ] || rm -rf "$entry"
    done
elif [ -z "$(ls -A "$data")" ]; then
    touch "$mark"
fi
if [ -e "$mark" ]; then
    case $kind in
    *MariaDB*)
        install=$(command -v mariadb-install-db || command -v mysql_install_db)
        # Not --user=root: it would change owners by name, and a bare image knows no names.
        "$install" --no-defaults --datadir="$data" --force --skip-test-db \
            --auth-root-authentication-method=normal
        ;;
    # Nothing of this needs to outlive a crash: a half-made directory is emptied anyway.
    *)
        "$server" --no-defaults --user=root --datadir="$data" --skip-log-bin --innodb-doublewrite=OFF \
            --innodb-flush-log-at-trx-commit=0 --innodb-buffer-pool-size=64M --loose-auto-generate-certs=OFF \
            --loose-caching-sha2-password-auto-generate-rsa-keys=OFF \
            --loose-sha256-password-auto-generate-rsa-keys=OFF --initialize-insecure
        ;;
    esac
    sync
    rm "$mark"
fi

case $kind in
*MariaDB*) set -- --innodb_log_file_size="$redo_capacity" "$@" ;;
# Two files; from 8.0.30 on the redo log's capacity takes precedence.
*"Ver 5."* | *"Ver 8.0"*) set -- --secure_file_priv=NULL --innodb_log_file_size=$((redo_capacity / 2)) "$@" ;;
*) set -- --secure_file_priv=NULL "$@" ;;
esac
exec "$server" --no-defaults --user=root --datadir="$data" --socket="$run/mysqld.sock" \
    --pid-file="$run/mysqld.pid" "$@"
