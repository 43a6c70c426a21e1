-- $1 day, $2 retention, $3 at most
select paidonce.purge_move($1, $2, $3) as n
