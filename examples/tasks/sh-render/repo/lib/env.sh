# read_env FILE: prints NAME=value lines

read_env() {
	. "$1"
	grep = "$1" | cut -d= -f1 | while read -r name; do
		eval "echo \"$name=\$$name\""
	done
}
