-- $1 tenant, $2 key
select id from paidonce.job where tenant = $1 and key = $2
