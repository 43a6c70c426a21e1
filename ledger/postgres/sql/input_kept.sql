-- $1 tenant, $2 job
select input_kept from paidonce.job where tenant = $1 and id = $2
