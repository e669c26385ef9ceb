interest	; Interest posting at the end of a bank's day: processes take blocks of accounts and post interest to each in a
	; transaction; after the last account the next day begins.
	;
setup	; Makes the database. Balances are in cents.
	new account
	set $etrap="use $principal write ""failed "",$zstatus,! zhalt 1"
	set ^next=0,^accounts=10000
	for account=1:1:^accounts set ^account(account)=$$opening(account)
	quit
	;
block	; Posts to the next block of accounts.
	new account,accounts,balance,day,first,interest,posting,size
	set size=20,first=$increment(^next,size)-size,accounts=^accounts
	for posting=first:1:first+size-1 do
	. set account=(posting#accounts)+1,day=posting\accounts
	. tstart ():serial
	. set balance=^account(account),interest=$$due(balance)
	. set ^account(account)=balance+interest,^posted(account,day)=interest
	. tcommit
	set units=units+size
	quit
	;
opening(account)	; What an account has at first.
	quit 100000+(account*37)
	;
due(balance)	; A day's interest at 5 % a year.
	quit balance*5\36500
	;
check	; Says what the database has: postings, the sum of the balances, the sum of what was there at first and was posted, and
	; the accounts that have not what as many postings one after the other give, whatever their order.
	new account,balance,balances,day,paid,postings,wrong
	set $etrap="use $principal write ""failed "",$zstatus,! zhalt 1"
	set (balances,paid,postings,wrong)=0
	for account=1:1:^accounts do
	. set balance=$$opening(account),paid=paid+balance,day=""
	. for  set day=$order(^posted(account,day)) quit:day=""  do
	. . set paid=paid+^posted(account,day),postings=postings+1,balance=balance+$$due(balance)
	. set balances=balances+^account(account)
	. if balance'=^account(account) set wrong=wrong+1
	write "found ",postings," ",balances," ",paid," ",wrong,!
	quit
