# First input: NAME=value lines. Second: the template.
NR == FNR {
	at = index($0, "=")
	value[substr($0, 1, at - 1)] = substr($0, at + 1)
	next
}
{
	for (name in value)
		gsub("\\$\\{" name "\\}", value[name])
	print
}
