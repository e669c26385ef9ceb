worker	; A process of the benchmark, as `mumps -run worker ROUTINE SECONDS`.
	; It says that it is ready, and begins when its standard input ends, so all begin at once. The first to run starts the
	; clock for all. In the end it says what it did: units of work, begin and end in us, processor time in ns.
	new begin,block,cpu,deadline,end,line,units
	set $etrap="use $principal write ""failed "",$zstatus,! zhalt 1"
	set block="block^"_$piece($zcmdline," "),units=0
	if $data(^start) ; Attaches to the database.
	do say("ready")
	read line
	set begin=$zut
	if '$data(^start) set ^start=begin
	set deadline=^start+($piece($zcmdline," ",2)*1000000),cpu=$$cpu
	for  do @block set end=$zut quit:end'<deadline
	do say("done "_units_" "_begin_" "_end_" "_($$cpu-cpu))
	quit
	;
say(text)	; Writes a line at once: of `write text,!` the end would go by itself, and others write too.
	set text=text_$char(10)
	write text
	quit
	;
version	; Says which GT.M this is.
	write $zversion,!
	quit
	;
cpu()	; Processor time of this process so far, in ns.
	new file,line
	set file="/proc/self/schedstat"
	open file:readonly
	use file
	read line
	use $principal
	close file
	quit $piece(line," ")
