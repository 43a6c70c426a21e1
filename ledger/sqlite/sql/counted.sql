-- id
select counted from paidonce_worker where id = ?
