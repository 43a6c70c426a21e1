-- $1 partition, $2 retention of bodies, $3 retention of keys
select paidonce.purge_drop($1, $2, $3) as n
