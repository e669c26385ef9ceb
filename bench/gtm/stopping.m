stopping	; The 3n+1 problem: processes take blocks of integers and share the steps to 1 of every number that they come by.
	; Short updates and nothing else: each result is a SET of its own.
	;
setup	; Makes the database.
	set ^next=0,^steps(1)=0
	quit
	;
block	; Does the next block of integers.
	new at,depth,first,n,path,size,steps
	set size=20,first=$increment(^next,size)-size
	for n=first+1:1:first+size do
	. set at=n,depth=0
	. for  quit:$data(^steps(at))  set depth=depth+1,path(depth)=at,at=$select(at#2:3*at+1,1:at\2)
	. set steps=^steps(at)
	. for  quit:'depth  set steps=steps+1,^steps(path(depth))=steps,depth=depth-1
	set units=units+size
	quit
	;
check	; Says what the database has: integers done, the sum of their steps, the one with the most, its steps.
	new longest,most,n,steps,sum
	set $etrap="use $principal write ""failed "",$zstatus,! zhalt 1"
	set (longest,most,sum)=0
	for n=1:1:^next set steps=^steps(n),sum=sum+steps if steps>most set most=steps,longest=n
	write "found ",^next," ",sum," ",longest," ",most,!
	quit
