# Functions of rotate. rotate_file FILE KEEP BYTES

file_size() {
	wc -c < $1
}

rotate_file() {
	file=$1
	keep=$2
	size=$3
	if [ $(file_size $file) -lt $size ]; then
		return 0
	fi
	n=$keep
	while [ $n -gt 0 ]; do
		if [ -e $file.$n ]; then
			mv $file.$n $file.$((n + 1))
		fi
		n=$((n - 1))
	done
	mv $file $file.1
	: > $file
}
