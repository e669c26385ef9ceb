# What mdb_load reads: so many records, in an order that is not that of their keys.
BEGIN {
    print "VERSION=3\nformat=print\ntype=btree\nmapsize=1073741824\nHEADER=END"
    for (i = 0; i < records; i++) printf " k%08d\n v%064d\n", i * 7919 % records, i
    print "DATA=END"
}
