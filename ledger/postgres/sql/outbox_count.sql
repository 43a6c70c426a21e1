select count(*) as n from paidonce.outbox
