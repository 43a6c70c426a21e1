-- $1 retention of bodies, $2 retention of keys
select parent, part, low, high from paidonce.purgeable($1, $2)
